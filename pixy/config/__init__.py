"""Configuration: the model, the YAML reader, and the rules."""

from pixy.config.effective import load_app
from pixy.config.load import default_text, load_file, load_text
from pixy.config.model import App, Consumer, Kafka, Logger, Producer, Proxy
from pixy.config.validate import validate

__all__ = [
    "App",
    "Consumer",
    "Kafka",
    "Logger",
    "Producer",
    "Proxy",
    "default_text",
    "load_app",
    "load_file",
    "load_text",
    "validate",
]
