"""Write a lake's records to a topic again, each once."""
