"""Processors: what surrounds the model call, through one public door (`Processor`)."""

from .base import HOOKS, Processor, ProcessorContext, StepInput

__all__ = ["HOOKS", "Processor", "ProcessorContext", "StepInput"]
