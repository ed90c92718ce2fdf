"""Consumer instances over REST."""

from __future__ import annotations

from pixy.api.restv1.routes import Routes


def add_routes(routes: Routes) -> None:
    """Add every path below ``/consumers``, each as ``routes.add(Route(method, template, handler,
    answers=..., only=..., reads_body=...))``.

    A handler is ``async def handler(call: Call) -> web.StreamResponse``. It finds the path's named
    segments in ``call.params``, the cluster in ``call.cluster``, what Accept and Content-Type mean
    in ``call.negotiated``, the query in ``call.query`` and ``call.integer(name, default)``, and the
    body through ``await call.document(decoder)``; it answers with ``await call.json(document)``,
    ``await call.answer(bytes, content_type=...)`` or ``call.nothing()`` (204), and raises
    :class:`~pixy.api.restv1.errors.ApiError` or anything of :mod:`pixy.errors`. An answer with
    records first calls ``call.share.take(max_bytes)``, which raises 503 when the process holds too
    much; a handler that must know whether the client has got the answer writes it itself
    (``prepare``, ``write_eof``) and returns it.
    """
