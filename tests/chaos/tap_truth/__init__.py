"""``make tap-truth``: what the tap says of groups, compared with what the brokers say, through faults."""
