"""TRL's side: `GRPOTrainer` with Hugging Face `generate`, taken one step at a time.

The trainer runs in a thread that waits between two steps, so what is timed is its own loop, from
the end of one step to the end of the next. `ReprefillRollout` puts a multi-turn rollout in the
style of Search-R1 in place of its generation: every turn is a stock `generate` over all live
episodes, prompts and all that followed included. Settings are the fastest of those that train the
same: no logging, no checkpoints, KV cache on, micro-batches of a size that was tried.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
import time
import warnings
from typing import Any

import torch
from workload import LEARNING_RATE, MAX_GRAD_NORM, Workload, observe, reward_text

from searchrl.engine.model.policy import Policy


def require_trl() -> None:
    """Say how to install TRL if it is not there.

    Raises:
        SystemExit: naming the command.
    """
    try:
        import trl  # noqa: F401
    except ImportError:
        raise SystemExit(
            "this benchmark compares with TRL: pip install 'searchrl[bench]'"
        ) from None


class ReprefillRollout:
    """Several turns by re-prefilling: `rollout_func` of `GRPOTrainer`."""

    def __init__(self, work: Workload, seed: int = 0) -> None:
        self.work = work
        self.seed = seed
        self.num_prefilled = 0
        """Tokens that were computed before a token could be sampled, since the start."""
        self.cpu_s = 0.0
        """CPU seconds of the last rollout."""

    def __call__(self, prompts: list[str], trainer: Any) -> dict[str, Any]:
        """Play the episodes of all prompts."""
        began = time.process_time()
        work, tokenizer = self.work, trainer.processing_class
        assert len(prompts) == work.num_rollouts
        prompt_ids = [tokenizer(text).input_ids for text in prompts]
        ids_BT = torch.tensor(prompt_ids, device=trainer.accelerator.device)
        masks: list[int] = []
        for turn in range(work.num_turns):
            self.num_prefilled += ids_BT.numel()
            ids_BT = self._generate(trainer, ids_BT)
            masks += [1] * work.turn_tokens
            if turn + 1 < work.num_turns and work.observation_tokens:
                said = [
                    observe(tokenizer, work.observation_tokens, len(row), row[-1])
                    for row in ids_BT.tolist()
                ]
                ids_BT = torch.cat([ids_BT, torch.tensor(said, device=ids_BT.device)], dim=1)
                masks += [0] * work.observation_tokens
        self.cpu_s = time.process_time() - began
        completions = ids_BT[:, work.prompt_tokens :].tolist()
        return {
            "prompt_ids": prompt_ids,
            "completion_ids": completions,
            "logprobs": None,
            "env_mask": [masks for _ in completions],
        }

    def _generate(self, trainer: Any, ids_BT: torch.Tensor) -> torch.Tensor:
        if trainer.use_vllm:
            made = trainer.vllm_generation.generate(ids_BT.tolist(), None, 1)[1]
            return torch.cat([ids_BT, torch.tensor(made, device=ids_BT.device)], dim=1)
        from trl.models import unwrap_model_for_generation

        with (
            unwrap_model_for_generation(
                trainer.model_wrapped,
                trainer.accelerator,
                generation_kwargs=trainer.generation_kwargs,
            ) as model,
            torch.no_grad(),
        ):
            # Episodes of one length need no padding here, which is to the advantage of this side.
            result: torch.Tensor = model.generate(
                input_ids=ids_BT,
                attention_mask=torch.ones_like(ids_BT),
                generation_config=trainer.generation_config,
            )
        return result


def vllm_options(policy: Policy, work: Workload, folder: str) -> dict[str, Any]:
    """Settings of `GRPOConfig` for vLLM in this process; `folder` gets the weights."""
    named = policy.base_model.state_dict().items()
    plain = {name.replace(".base_layer", ""): one for name, one in named if "lora_" not in name}
    policy.base_model.save_pretrained(folder, state_dict=plain)
    policy.tokenizer.save_pretrained(folder)
    policy.base_model.name_or_path = folder
    exactly = {"min_tokens": work.turn_tokens, "ignore_eos": True, "detokenize": False}
    return {
        "use_vllm": True,
        "vllm_max_model_length": work.max_length,
        "vllm_importance_sampling_correction": False,  # it costs a pass
        "generation_kwargs": exactly,
    }


class TrlSide:
    """One training step after another with `GRPOTrainer`.

    Args:
        model: trained in place; a PEFT model with an adapter, or a plain one.
        tokenizer: of the model.
        work: sizes of a step.
        prompts: its texts.
        micro_batch: rollouts of one forward-backward pass.
        rollout: in place of its own generation.
        options: further settings of `GRPOConfig`.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        work: Workload,
        prompts: list[str],
        *,
        micro_batch: int = 8,
        rollout: ReprefillRollout | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        warnings.filterwarnings("ignore", category=FutureWarning)
        from datasets import Dataset
        from datasets.utils.logging import disable_progress_bar
        from transformers import PrinterCallback, TrainerCallback
        from transformers.utils import logging
        from trl import GRPOConfig, GRPOTrainer

        disable_progress_bar()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self._go: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._num_threads = torch.get_num_threads()
        side = self

        class Waiting(TrainerCallback):  # type: ignore[misc]
            """Hands over between two steps."""

            def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> Any:
                side._done.put(None)
                if not side._go.get():
                    control.should_training_stop = True
                return control

        def reward(completions: list[str], **rest: Any) -> list[float]:
            return [reward_text(text) for text in completions]

        is_cpu = next(model.parameters()).device.type == "cpu"
        micro_batch = min(micro_batch, work.num_rollouts)
        settings: dict[str, Any] = {
            "output_dir": tempfile.mkdtemp(prefix="bench-trl-"),
            "per_device_train_batch_size": micro_batch,
            "gradient_accumulation_steps": work.num_rollouts // micro_batch,
            "num_generations": work.group_size,
            "max_completion_length": work.turn_tokens,
            "generation_kwargs": {"min_new_tokens": work.turn_tokens, "use_cache": True},
            "temperature": 1.0,
            "beta": 0.0,
            "learning_rate": LEARNING_RATE,
            "lr_scheduler_type": "constant",
            "max_grad_norm": MAX_GRAD_NORM,
            "weight_decay": 0.0,
            "max_steps": 1 << 20,
            "use_cpu": is_cpu,
            "bf16": not is_cpu,
            "gradient_checkpointing": False,
            "logging_strategy": "no",
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "seed": seed,
        }
        self.trainer = GRPOTrainer(
            model=model,
            reward_funcs=reward,
            args=GRPOConfig(**(settings | options)),
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=tokenizer,
            callbacks=[Waiting()],
            rollout_func=rollout,
        )

        self.trainer.remove_callback(PrinterCallback)

    def step(self) -> float:
        """Let the trainer do one step; seconds."""
        started = time.perf_counter()
        if self._thread is None:
            self._thread = threading.Thread(target=self._train, daemon=True)
            self._thread.start()
        else:
            self._go.put(True)
        error = self._done.get()
        if error is not None:
            raise error
        return time.perf_counter() - started

    def stop(self) -> None:
        """End the training."""
        if self._thread is not None:
            self._go.put(False)
            self._thread.join()

    def _train(self) -> None:
        torch.set_num_threads(self._num_threads)  # of this thread
        try:
            self.trainer.train()
        except BaseException as error:  # told to whoever waits for the step
            self._done.put(error)
