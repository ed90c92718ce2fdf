"""A music server in the shape of Mopidy: a core, backends, an audio output and frontends, all actors, with proxies.

    python examples/actors_player.py

It is written as for pykka, with ``ThreadingActor`` replaced by ``ThreadedActor`` and nothing else: providers are
traversable attributes, the core gathers futures of all backends with ``get_all``, events go to all listeners through
the registry, and handlers block where they like. Two things are there that pykka does not have. The backends have a
parent that restarts one that fails, and their proxies stay valid. One frontend is an ``Actor`` already: its handlers
are coroutines, and it talks to the same core.
"""

import logging
import threading
from typing import Any

import pykka

from actors import Actor, ActorRegistry, Backoff, Supervision, ThreadedActor

TRACKS = {
    "local": {"local:1": "Kind of Blue", "local:2": "Blue Train"},
    "stream": {"stream:1": "Radio Blue", "stream:2": "Radio Swiss"},
}


class LibraryProvider:
    """Searches one backend; a traversable attribute, so ``backend.library.search(...)`` works through a proxy."""

    pykka_traversable = True

    def __init__(self, scheme: str) -> None:
        self.tracks = TRACKS[scheme]

    def search(self, text: str) -> list[str]:
        if text == "crash":
            raise ConnectionError("the index is gone")
        return [uri for uri, title in self.tracks.items() if text.lower() in title.lower()]


class Backend(ThreadedActor):
    """One source of music."""

    def __init__(self, scheme: str) -> None:
        super().__init__()
        self.scheme = scheme
        self.library = LibraryProvider(scheme)


class Backends(ThreadedActor):
    """Starts the backends, and starts one again that fails: its parent, which pykka does not have."""

    supervision = Supervision(backoff=Backoff(first=0.01))

    def on_start(self) -> None:
        self.refs = [self.spawn(Backend, scheme, name=scheme) for scheme in TRACKS]

    def proxies(self) -> list[Any]:
        return [ref.proxy() for ref in self.refs]


class Audio(ThreadedActor):
    """Plays one track at a time; a property and a method that other threads use through a proxy."""

    volume = 50

    def play(self, uri: str) -> str:
        return f"playing {uri} at {self.volume}"


class CoreListener:
    """Base class of listeners to events; Mopidy's way of sending them, unchanged."""

    @staticmethod
    def send(event: str, **details: Any) -> None:
        for ref in ActorRegistry.get_by_class(CoreListener):  # type: ignore[type-var]
            ref.tell({"event": event, **details})


class PlaybackController:
    """Part of the core; traversable, too."""

    pykka_traversable = True

    def __init__(self, audio: Any) -> None:
        self.audio = audio
        self.current: str | None = None

    def play(self, uri: str) -> str:
        self.current = uri
        CoreListener.send("track_playback_started", uri=uri)
        result: str = self.audio.play(uri).get()  # blocks the core's own thread, as in pykka
        return result


class Core(ThreadedActor):
    """The player that frontends talk to."""

    def __init__(self, audio: Any, backends: list[Any]) -> None:
        super().__init__()
        self.backends = backends
        self.playback = PlaybackController(audio)

    def search(self, text: str) -> list[str]:
        found = pykka.get_all([backend.library.search(text) for backend in self.backends])
        return sorted(uri for uris in found for uri in uris)


class ConsoleFrontend(ThreadedActor, CoreListener):
    """A frontend as it was."""

    def __init__(self, heard: threading.Event) -> None:
        super().__init__()
        self.heard = heard

    def on_receive(self, message: dict[str, Any]) -> None:
        print("console:", message["event"], message["uri"])
        self.heard.set()


class WebFrontend(Actor):
    """A frontend that has moved on: ``await`` in place of ``get()``, no thread."""

    def __init__(self, core: Any) -> None:
        super().__init__()
        self.core = core

    async def on_receive(self, message: str) -> str:
        uris = await self.core.search(message)
        return f"web: {', '.join(uris)}"


def main() -> None:
    """Start the actors, use them from this thread as a protocol's thread would, stop them in order."""
    logging.disable()  # the crash below is logged with its traceback
    audio = Audio.start().proxy()
    backends = Backends.start().proxy()
    proxies = backends.proxies().get()
    core = Core.start(audio, proxies).proxy()
    heard = threading.Event()
    ConsoleFrontend.start(heard)

    print("found", core.search("blue").get())
    audio.volume = 80  # waits until it is set: this thread has no event loop
    print(core.playback.play("local:1").get(timeout=5), "and", core.playback.current.get(timeout=5))
    heard.wait(5)

    proxies[0].library.search.defer("crash")  # a tell: the backend fails, and its parent starts it again
    print("found", core.search("train").get(timeout=5), "after a crash")
    print(WebFrontend.start(core).ask("radio", timeout=5))

    for part in (WebFrontend, ConsoleFrontend, Core, Backends, Audio):  # as Mopidy does: by class, in order
        for ref in ActorRegistry.get_by_class(part):
            ref.stop()
    print("left:", ActorRegistry.get_all())
    print("Good news everyone!")


if __name__ == "__main__":
    main()
