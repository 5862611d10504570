"""Output of the scripts in this folder."""

import errno


def show(*values):
    print(*values, flush=True)


def said(call, *arguments):
    """The result of a call, or the name of its error."""
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
