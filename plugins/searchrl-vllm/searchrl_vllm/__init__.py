"""The generator `vllm`: a vLLM server samples, in a process of its own. Only hooks."""

from searchrl import Register, hookimpl

PLUGIN_API = 2


@hookimpl
def register_generators(register: Register) -> None:
    """vLLM, in an environment of its own."""
    register(
        "vllm",
        "searchrl_vllm.generator:make_vllm",
        description="a vLLM server: started here with engine.generator.python, or at an address",
    )


@hookimpl
def register_commands(register: Register) -> None:
    """A server that runs on its own."""
    register(
        "serve-generator",
        "searchrl_vllm.command:serve_generator",
        description="Start a vLLM server that training runs can sample from.",
    )
