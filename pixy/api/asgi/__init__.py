"""The APIs over ASGI: an HTTP server (Envoy) hosts this process, and hands requests to :class:`pixy.api.asgi.front.Front`."""
