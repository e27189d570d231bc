class Scheduler:
    pass
