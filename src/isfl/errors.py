"""The one exception that speaks to the user.

Anything a user can cause (a wrong key, a missing file, an impossible split) is raised as a
`UserError` with one line that names the key or file and what would be right. The command line
prints that line and exits with code 2. Every other exception is a bug of ours and keeps its traceback.
"""


class UserError(ValueError):
    """A mistake in the input, told in one line: where, what was found, what would be right."""
