"""A pykka program, ported by changing its base class.

Run it with ``python examples/actors_ported.py``; it needs nothing but the package. The commented
lines are the original's; all others are the same in both. pykka's own types, proxies, futures and
registry work as before, because this actor is a pykka actor too.
"""

import pykka

# import pykka
from actors import Actor


# class Resolver(pykka.ThreadingActor):
class Resolver(Actor):
    """Knows some names."""

    def __init__(self) -> None:
        super().__init__()
        self.known = {"localhost": "127.0.0.1"}

    def resolve(self, name: str) -> str | None:
        return self.known.get(name)


# class Greeter(pykka.ThreadingActor):
class Greeter(Actor):
    """Greets; plain messages and method calls through a proxy."""

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
