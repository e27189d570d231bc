"""The one exception that becomes a reply `ok: false` with a code of the protocol."""


class Refusal(Exception):
    """The agent did not do it. `code` is a word of the protocol, `data` is JSON."""

    def __init__(self, code, message, **data):
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data
