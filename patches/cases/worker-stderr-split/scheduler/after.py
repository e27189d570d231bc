from sglang import _sgldbg
def run_scheduler_process(
    server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank, pipe_writer
):
    # Generate the logger prefix
    import os as _sgldbg_os
    import tempfile as _sgldbg_tempfile
    _sgldbg_path = _sgldbg_os.path.join(
        _sgldbg_os.environ.get("SGLDBG_STDERR_DIR") or _sgldbg_tempfile.gettempdir(),
        f"sglang-{_sgldbg_os.getppid()}-DP{dp_rank or 0}-TP{tp_rank}-GPU{gpu_id}.stderr",
    )
    _sgldbg_flags = _sgldbg_os.O_WRONLY | _sgldbg_os.O_CREAT | _sgldbg_os.O_APPEND
    _sgldbg_fd = _sgldbg_os.open(_sgldbg_path, _sgldbg_flags | _sgldbg_os.O_NOFOLLOW, 0o600)
    _sgldbg_os.write(2, f"stderr of TP{tp_rank} goes on in {_sgldbg_path}\n".encode())
    _sgldbg_os.dup2(_sgldbg_fd, 2)
    _sgldbg_os.close(_sgldbg_fd)
    prefix = f" TP{tp_rank}"
    try:
        scheduler = Scheduler(server_args, port_args, gpu_id, tp_rank, pp_rank, dp_rank)
        _sgldbg.off("worker-stderr-split.2") or _sgldbg.hit("worker-stderr-split.2", locals()); pipe_writer.send(scheduler.get_init_info())
        scheduler.event_loop_normal()
    except Exception:
        report(prefix)
