"""A pykka program, ported by changing its base class.

Run it with ``python examples/actors_ported.py``; it needs only the package itself. The commented lines are
the original ones; all other lines are the same in both versions. pykka's types, proxies, futures and registry
work as before, because an ``actors.Actor`` is a pykka actor.
"""

import pykka

# import pykka
from actors import Actor


# class Resolver(pykka.ThreadingActor):
class Resolver(Actor):
    """Resolve host names from a table."""

    def __init__(self) -> None:
        super().__init__()
        self.known = {"localhost": "127.0.0.1"}

    def resolve(self, name: str) -> str | None:
        return self.known.get(name)


# class Greeter(pykka.ThreadingActor):
class Greeter(Actor):
    """Greet on a message, or on a method call through a proxy."""

    def __init__(self, greeting: str = "Good news") -> None:
        super().__init__()
        self.greeting = greeting

    def greet(self, whom: str) -> str:
        return f"{self.greeting} {whom}!"

    def on_receive(self, message: dict[str, str]) -> str:
        return self.greet(message["whom"])


def main() -> None:
    try:
        resolvers = [Resolver.start().proxy() for _ in range(3)]
        print(pykka.get_all([each.resolve("localhost") for each in resolvers]))

        ref = Greeter.start()
        assert isinstance(ref, pykka.ActorRef)
        print(ref.ask({"whom": "nobody"}, timeout=5))
        greeter = ref.proxy()
        greeter.greeting = "Good morning"
        print(greeter.greet("you").get(timeout=5))
        greeter.greeting = "Good news"
        print(greeter.greet("everyone").get(timeout=5))
    finally:
        pykka.ActorRegistry.stop_all()


if __name__ == "__main__":
    main()
