"""An HTTP request that came in one piece, as nearly all to the queue door do. Compiled where it was built, a twin elsewhere.

`read_post(data)` gives (path, headers, body) of a POST that is all of the bytes and has nothing unusual about it: HTTP/1.1, a plain path,
headers of letters, digits and hyphens with printable values, one Content-Length that is true, and nothing that changes how a connection
goes on. Names are in lower case; of two alike the last counts. None: it may be anything, and a full parser must tell. What is read here a
full parser would read just so; it only takes several times as long, since it calls back for each piece.
"""

from typing import TYPE_CHECKING

Post = tuple[bytes, dict[bytes, bytes], bytes]

if TYPE_CHECKING:
    from penstock.wire._posts_py import read_post

    COMPILED: bool
else:
    try:
        from penstock.wire._posts import read_post

        COMPILED = True
    except ImportError:
        from penstock.wire._posts_py import read_post

        COMPILED = False

__all__ = ["COMPILED", "Post", "read_post"]
