def run_scheduler_process(
    server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank, pipe_writer
):
    # Generate the logger prefix
    prefix = f" TP{tp_rank}"
    try:
        scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank)
        pipe_writer.send(scheduler.get_init_info())
        scheduler.event_loop_normal()
    except Exception:
        report(prefix)
