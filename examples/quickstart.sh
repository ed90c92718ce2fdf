#!/usr/bin/env bash
# Produce, consume, acknowledge and read offsets with curl. Start a daemon first: make run
set -euo pipefail
REST=${REST:-http://localhost:19092}
TOPIC=${TOPIC:-foo}
field() { sed -n "s/^  \"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p"; }

echo "The first request joins the group; a new group sees only messages produced from now on."
curl -sS "$REST/topics/$TOPIC/messages?group=quick"
echo
echo "Produce a message and wait for Kafka's acknowledgement:"
curl -sSf -X POST "$REST/topics/$TOPIC/messages?key=bar&sync" \
  -H 'Content-Type: text/plain' -d 'Good news everyone!'
echo
echo "Consume it without acknowledging:"
message=$(curl -sSf "$REST/topics/$TOPIC/messages?group=quick&noAck")
echo "$message"
echo "The value is base64: $(echo "$message" | field value | base64 -d)"
echo "Acknowledge it:"
curl -sSf -X POST "$REST/topics/$TOPIC/acks?group=quick&partition=$(echo "$message" | field partition)&offset=$(echo "$message" | field offset)"
echo
sleep 1
echo "The group's offsets:"
curl -sSf "$REST/topics/$TOPIC/offsets?group=quick"
echo
