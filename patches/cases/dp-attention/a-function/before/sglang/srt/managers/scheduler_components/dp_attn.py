def prepare_mlp_sync_batch_raw(local_batch, disable_cuda_graph):
    if local_batch is None:
        num_tokens = 0
    elif local_batch.forward_mode.is_decode():
        num_tokens = local_batch.batch_size()
    else:
        num_tokens = local_batch.extend_num_tokens
    return gather(num_tokens, disable_cuda_graph)
