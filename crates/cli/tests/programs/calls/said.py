"""What the scripts beside this one say."""

import errno


def show(*values):
    print(*values, flush=True)


def said(call, *arguments):
    """What a call returns, or the name of its error."""
    try:
        return call(*arguments)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
