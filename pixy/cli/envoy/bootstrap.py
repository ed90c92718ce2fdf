"""Write Envoy's configuration. Pure, but for names that are looked up and certificates that are read."""

from __future__ import annotations

import base64
import json
import math
import os
import socket
import threading
from pathlib import Path
from typing import Any, Final

from pixy.api.edge.connections import bounds
from pixy.api.listener import split_address
from pixy.cli.processes.child import tcp_addresses
from pixy.config.model import App, Tls

APPLICATION: Final = "pixy.cli.envoy.hosted:application"
ADMIN: Final = "admin.sock"
"""Envoy's own interface: a unix socket in the private folder, because whoever reaches it may end the daemon."""
SERVER: Final = "server"
CLIENTS: Final = "clients"
"""Names of Envoy's secrets: the certificate, and the CA of clients. Each has a file of its own, as Envoy wants it."""
_SLACK: Final = 64 * 1024
_READ_AT_ONCE: Final = 32 * 1024
"""Bytes that Envoy reads from a connection before it looks at others: a megabyte of compressed heads is ten thousand requests."""
_TYPES: Final = "type.googleapis.com/envoy.extensions."
_SECRET: Final = _TYPES + "transport_sockets.tls.v3.Secret"
_MOST_HEADERS_KIB: Final = 8192
_MOST_ADDRESSES: Final = 16384
"""Addresses whose requests are counted apart; the one that was silent for longest is forgotten."""
_RATE: Final = 2048
"""Requests in a second from one address where ``auth`` is on and nothing else is said."""
_FILLS: Final = 20
"""How often in a second a bucket of requests is filled."""
_VERSIONS: Final = {"1.2": "TLSv1_2", "1.3": "TLSv1_3"}
_writing: Final = threading.Lock()
"""Held while certificates are read and written: each listener publishes them, in a thread of its own, at the same time."""


def bootstrap(app: App, folder: str, module: str) -> dict[str, Any]:
    """Return Envoy's configuration.

    Args:
        app: the daemon's.
        folder: for its sockets and certificates.
        module: path of pyvoy's dynamic module.

    Raises:
        OSError: a host's name is not known.
    """
    addresses = [_socket(address) for address in tcp_addresses(app).values()]
    listener: dict[str, Any] = {
        "name": "pixy",
        "address": addresses[0],
        "additional_addresses": [{"address": each} for each in addresses[1:]],
        "enable_reuse_port": False,  # or a second daemon would bind the same ports silently
        "per_connection_buffer_limit_bytes": _READ_AT_ONCE,
        "filter_chains": [_filter_chain(app, folder, module)],
    }
    return {
        "node": {"id": "kafka-pixy", "cluster": "kafka-pixy"},  # files of certificates need a name
        "admin": {"address": {"pipe": {"path": os.path.join(folder, ADMIN), "mode": 0o600}}},
        "static_resources": {"listeners": [listener]},
    }


def _socket(address: str) -> dict[str, Any]:
    host, port = split_address(address)
    infos = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return {"socket_address": {"address": infos[0][4][0], "port_value": port}}


def _largest_body(app: App) -> int:
    """Return the bytes of a body above which Envoy takes no more of it until the daemon has read some."""
    message = max(proxy.producer.max_message_bytes for proxy in app.proxies.values())
    return max(1024 * 1024, 2 * message, app.rest.max_request_bytes) + _SLACK


def _duration(seconds: float) -> str:
    return f"{seconds:.3f}s"


def _filter_chain(app: App, folder: str, module: str) -> dict[str, Any]:
    found = bounds(app.connections)
    chain: dict[str, Any] = {
        "filters": [
            {
                "name": "envoy.filters.network.connection_limit",
                "typed_config": {
                    "@type": _TYPES + "filters.network.connection_limit.v3.ConnectionLimit",
                    "stat_prefix": "pixy",
                    "max_connections": found.http + found.grpc,
                },
            },
            {
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": _connection_manager(app, module),
            },
        ],
        "transport_socket_connect_timeout": _duration(app.connections.handshake_timeout),
    }
    if app.tls.certificate_path:
        chain["transport_socket"] = _transport_socket(app.tls, folder)
    return chain


def _connection_manager(app: App, module: str) -> dict[str, Any]:
    settings = app.connections
    header_bytes = max(settings.max_header_bytes, settings.grpc_max_metadata_bytes)
    common: dict[str, Any] = {"idle_timeout": _duration(settings.idle_timeout)}
    if settings.grpc_max_age:
        common["max_connection_duration"] = _duration(settings.grpc_max_age)
    return {
        "@type": _TYPES + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "pixy",
        "server_name": "kafka-pixy",
        "generate_request_id": False,
        "stream_idle_timeout": "0s",  # a long poll and a health watch may be silent for long
        "request_headers_timeout": _duration(settings.header_timeout),
        "max_request_headers_kb": min(_MOST_HEADERS_KIB, math.ceil(header_bytes / 1024)),
        "drain_timeout": _duration(settings.grpc_max_age_grace),
        "http_protocol_options": {"accept_http_10": True},
        "http2_protocol_options": {"max_concurrent_streams": settings.grpc_max_streams},
        "common_http_protocol_options": common,
        # A header of that name which a client sends is never believed.
        "forward_client_cert_details": "SANITIZE_SET" if app.tls.client_ca_path else "SANITIZE",
        "set_current_client_cert_details": {"cert": True},
        "route_config": {
            "virtual_hosts": [{"name": "pixy", "domains": ["*"], "routes": [_route(app)]}],
            "validate_clusters": False,
        },
        "original_ip_detection_extensions": [_own_address()],
        "http_filters": [
            *_request_rate(app),
            _readable_paths(),
            {
                "name": "envoy.filters.http.grpc_web",
                "typed_config": {"@type": _TYPES + "filters.http.grpc_web.v3.GrpcWeb"},
            },
            _application(module),
        ],
    }


def _route(app: App) -> dict[str, Any]:
    """Bound the body that waits for the daemon. Nothing is ever routed: the application comes first."""
    return {
        "match": {"prefix": ""},
        "route": {"cluster": "none"},
        "request_body_buffer_limit": _largest_body(app),
    }


def _own_address() -> dict[str, Any]:
    """Let Envoy believe nobody's X-Forwarded-For: the daemon knows the proxies that it trusts."""
    nobody = {"cidrs": [{"address_prefix": "255.255.255.255", "prefix_len": 32}]}
    return {
        "name": "envoy.http.original_ip_detection.xff",
        "typed_config": {
            "@type": _TYPES + "http.original_ip_detection.xff.v3.XffConfig",
            "xff_trusted_cidrs": nobody,
            "skip_xff_append": True,
        },
    }


def _request_rate(app: App) -> list[dict[str, Any]]:
    """Refuse requests above a rate, for each address and for all, before pyvoy queues them for Python.

    Not where ``auth`` is off and no rate is set: whoever reaches the daemon is trusted then, and may send as much as it can serve.
    Nothing else bounds that queue. A request stays in it when its connection has ended, and a client that does not confirm
    Envoy's settings may have more than ``max_concurrent_streams``.
    """
    rate = app.connections.max_request_rate or (_RATE if app.auth.enabled else 0)
    if not rate:
        return []

    def bucket(each: int) -> dict[str, Any]:
        return {
            "max_tokens": each,
            "tokens_per_fill": math.ceil(each / _FILLS),
            "fill_interval": _duration(1 / _FILLS),
        }

    caller = {"masked_remote_address": {"v4_prefix_mask_len": 32, "v6_prefix_mask_len": 64}}
    always = {"default_value": {"numerator": 100}}
    limiter = {
        "name": "envoy.filters.http.local_ratelimit",
        "typed_config": {
            "@type": _TYPES + "filters.http.local_ratelimit.v3.LocalRateLimit",
            "stat_prefix": "pixy",
            "filter_enabled": always,
            "filter_enforced": always,
            "token_bucket": bucket(2 * rate),
            "descriptors": [{"entries": [{"key": "masked_remote_address"}], "token_bucket": bucket(rate)}],
            "rate_limits": [{"actions": [caller]}],
            "max_dynamic_descriptors": _MOST_ADDRESSES,
            "rate_limited_as_resource_exhausted": True,
        },
    }
    return [limiter]


_TAIL: Final = "%[89ABab][0-9A-Fa-f]"
_READABLE: Final = "|".join(
    (
        "[\\x00-$&-\\x7f]",
        "%[0-7][0-9A-Fa-f]",
        f"%([Cc][2-9A-Fa-f]|[Dd][0-9A-Fa-f]){_TAIL}",
        f"%[Ee](0%[ABab][0-9A-Fa-f]|[Dd]%[89][0-9A-Fa-f]|[1-9A-CEFa-cef]{_TAIL}){_TAIL}",
        f"%[Ff](0%[9ABab][0-9A-Fa-f]|4%8[0-9A-Fa-f]|[1-3]{_TAIL}){_TAIL}{_TAIL}",
    )
)
"""Paths that are UTF-8 once their percent-encoded bytes are decoded (RFC 3629, section 4)."""


def _readable_paths() -> dict[str, Any]:
    """Refuse other paths with 403: pyvoy fails on them, and the request would never be answered."""
    matches = {"url_path": {"path": {"safe_regex": {"regex": f"({_READABLE})*"}}}}
    return {
        "name": "envoy.filters.http.rbac",
        "typed_config": {
            "@type": _TYPES + "filters.http.rbac.v3.RBAC",
            "rules": {
                "action": "DENY",
                "policies": {
                    "path is not UTF-8": {
                        "permissions": [{"not_rule": matches}],
                        "principals": [{"any": True}],
                    }
                },
            },
        },
    }


def _application(module: str) -> dict[str, Any]:
    options = {
        "app": APPLICATION,
        "interface": "asgi",
        "root_path": "",
        "worker_threads": 1,
        "lifespan": True,
    }
    return {
        "name": "pyvoy",
        "typed_config": {
            "@type": _TYPES + "filters.http.dynamic_modules.v3.DynamicModuleFilter",
            "dynamic_module_config": {"module": {"local": {"filename": module}}},
            "filter_name": "pyvoy",
            "terminal_filter": True,
            "filter_config": {
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": json.dumps(options),
            },
        },
    }


def _transport_socket(tls: Tls, folder: str) -> dict[str, Any]:
    def secret(name: str) -> dict[str, Any]:
        path = {"path": os.path.join(folder, f"{name}.json")}
        return {"name": name, "sds_config": {"path_config_source": path, "resource_api_version": "V3"}}

    parameters: dict[str, Any] = {"tls_minimum_protocol_version": _VERSIONS[tls.min_version]}
    parameters["tls_maximum_protocol_version"] = "TLSv1_3"
    if tls.ciphers:
        parameters["cipher_suites"] = tls.ciphers.split(":")
    common: dict[str, Any] = {
        "alpn_protocols": ["h2", "http/1.1"],
        "tls_params": parameters,
        "tls_certificate_sds_secret_configs": [secret(SERVER)],
    }
    if tls.client_ca_path:
        common["validation_context_sds_secret_config"] = secret(CLIENTS)
    return {
        "name": "envoy.transport_sockets.tls",
        "typed_config": {
            "@type": _TYPES + "transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": common,
            "require_client_certificate": bool(tls.client_ca_path) and tls.client_certificates == "required",
        },
    }


def write_tls(tls: Tls, folder: str) -> None:
    """Write the certificates for Envoy, which takes them from then on for new connections. Blocks.

    Envoy reads a file when it is moved into its place, and then only: one that is not whole at that moment is refused, with
    no word in the daemon's log, and the earlier certificate stays in use.

    Args:
        tls: the section, with a certificate.
        folder: the private one.

    Raises:
        OSError: a file cannot be read or written.
    """

    with _writing:
        for name, secret in _secrets(tls).items():
            path = os.path.join(folder, f"{name}.json")
            handle = os.open(path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(handle, "w", encoding="utf-8") as file:
                json.dump({"resources": [{"@type": _SECRET, "name": name, **secret}]}, file)
            os.rename(path + ".new", path)


def _secrets(tls: Tls) -> dict[str, dict[str, Any]]:
    """Read the certificates; return Envoy's secrets by their names."""

    def inline(path: str) -> dict[str, str]:
        return {"inline_bytes": base64.b64encode(Path(path).read_bytes()).decode()}

    secrets: dict[str, dict[str, Any]] = {
        SERVER: {
            "tls_certificate": {
                "certificate_chain": inline(tls.certificate_path),
                "private_key": inline(tls.key_path),
            },
        }
    }
    if tls.client_ca_path:
        secrets[CLIENTS] = {"validation_context": {"trusted_ca": inline(tls.client_ca_path)}}
    return secrets


__all__ = ["ADMIN", "APPLICATION", "CLIENTS", "SERVER", "bootstrap", "write_tls"]
