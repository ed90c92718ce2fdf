"""Show a group's members and their partitions from captured frames, as a tap or a packet capture records them.

Usage: python examples/wire_joingroup.py [FILE]

FILE has lines "> HEX" for bytes that a client sent and "< HEX" for the broker's answers, on one connection; frames may
be split anywhere. Without FILE, the example reads a built-in capture of a consumer that joins alone.
"""

import sys
from pathlib import Path

from pixy.wire import consumer_protocol, frames
from pixy.wire.correlator import Correlator, Token
from pixy.wire.exceptions import WireError

CAPTURE = """\
> 00000052000b00070000000100026d650009636865636b6f75740000afc8000493e0046d2d310009636f6e73756d65720206
> 72616e67651d00030000000100066f7264657273ffffffff00000000ffffffffffff0000
< 0000004b00000001000000000000000000000409636f6e73756d65720672616e6765046d2d31046d2d3102046d2d31001d00
< 030000000100066f7264657273ffffffff00000000ffffffffffff0000
> 00000054000e00050000000200026d650009636865636b6f757400000004046d2d310009636f6e73756d65720672616e6765
> 02046d2d311f00030000000100066f7264657273000000020000000000000001ffffffff0000
< 0000003a000000020000000000000009636f6e73756d65720672616e67651f00030000000100066f72646572730000000200
< 00000000000001ffffffff00
"""


def owners(body: dict) -> str:
    """Format the topics and partitions of an assignment."""
    assigned = consumer_protocol.decode_assignment(body["Assignment"]).body["AssignedPartitions"]
    return ", ".join(f"{each['Topic']} {each['Partitions']}" for each in assigned) or "nothing"


def tell(request: frames.Request, response: frames.Response) -> None:
    """Print a JoinGroup or SyncGroup request with its response."""
    asked, answered = request.body, response.body
    who = f"{asked['MemberId'] or '(new)'} of {asked['GroupId']}"
    if request.name == "JoinGroupRequest":
        print(f"{who} joins as {asked['ProtocolType']}, JoinGroup v{request.version}")
        for protocol in asked["Protocols"]:
            version, wanted = consumer_protocol.decode_subscription(protocol["Metadata"])
            print(f"  offers {protocol['Name']} for {', '.join(wanted['Topics'])} (subscription v{version})")
        print(
            f"  generation {answered['GenerationId']}, {answered['ProtocolName']}, led by {answered['Leader']}"
        )
    elif request.name == "SyncGroupRequest":
        print(f"{who}, generation {asked['GenerationId']}, SyncGroup v{request.version}")
        for each in asked["Assignments"]:
            print(f"  as the leader gives {each['MemberId']}: {owners(each)}")
        print(f"  gets {owners(answered)}")


def main() -> int:
    text = Path(sys.argv[1]).read_text(encoding="ascii") if len(sys.argv) > 1 else CAPTURE
    there, back, correlator = frames.FrameSplitter(), frames.FrameSplitter(), Correlator()
    waiting = {}
    for line in text.splitlines():
        data = bytes.fromhex(line[1:])
        if line.startswith(">"):
            for frame in there.feed(data):
                header = correlator.request(frame)
                if not isinstance(header, Token):
                    waiting[header.correlation_id] = frames.decode_request(frame)
        else:
            for frame in back.feed(data):
                header = correlator.response(frame)
                if not isinstance(header, Token):
                    request = waiting.pop(header.correlation_id)
                    tell(request, frames.decode_response(frame, header.key, header.version))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (WireError, OSError, ValueError) as error:
        sys.exit(
            f"{sys.argv[1] if len(sys.argv) > 1 else 'the capture'}: {getattr(error, 'strerror', None) or error}"
        )
