"""Module <-> checkpoint: which tensor is stored how, and under which name."""

import pathlib
import re
import shutil

import numpy as np
import torch

import checkpoint
from checkpoint import Tensor
from config import Config
from layers import Experts, Linear8
from model import Model

MODEL = pathlib.Path(__file__).resolve().parents[1]
# Files of a model directory that training leaves as they are.
COPIED = ("config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_prompts.json")
BF16_NAMES = re.compile(r"norm\.weight|(embed|head|gate|wkv|wgate|weights_proj)\.weight")


def official_name(name: str) -> str:
    return re.sub(r"\bhc_(attn|ffn|head)\.", r"hc_\1_", name)


def tensors_of(model: Model) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    taken: set[str] = set()
    for prefix, module in model.named_modules():
        if isinstance(module, Linear8):
            tensors |= checkpoint.pack_fp8(prefix, _numpy(module.weight))
            taken.add(f"{prefix}.weight")
        elif isinstance(module, Experts):
            for name, stack in module.named_parameters():
                for e, weight in enumerate(_numpy(stack)):
                    tensors |= checkpoint.pack_fp4(f"{prefix}.{e}.{name}", weight)
                taken.add(f"{prefix}.{name}")
    for name, value in model.state_dict().items():
        if name not in taken:
            tensors[official_name(name)] = _plain(name, value)
    return tensors


def _plain(name: str, value: torch.Tensor) -> Tensor:
    if value.dtype == torch.int64:
        return Tensor("I64", value.cpu().numpy())
    if name.endswith("gate.bias"):  # added in FP32, so kept in full
        return Tensor("F32", _numpy(value))
    rounded = _numpy(value.bfloat16().float())
    return checkpoint.pack_bf16(rounded) if BF16_NAMES.search(name) else Tensor("F32", rounded)


def _numpy(value: torch.Tensor) -> np.ndarray:
    return value.detach().float().cpu().numpy()


def write(model: Model, folder: pathlib.Path) -> None:
    """A model directory: two shards, the first with the tensors outside layers, and what training leaves."""
    split = (model.config.num_hidden_layers + 1) // 2
    shards: list[dict[str, Tensor]] = [{}, {}]
    for name, tensor in tensors_of(model).items():
        layer = re.match(r"layers\.(\d+)\.", name)
        second = name.startswith("mtp.") or layer is not None and int(layer[1]) >= split
        shards[second][name] = tensor
    checkpoint.write(folder, shards)
    for file in COPIED:
        if MODEL != folder.resolve():
            shutil.copy(MODEL / file, folder / file)


def read(folder: pathlib.Path) -> Model:
    """A model in FP32 whose rounding to the grids changes nothing."""
    model = Model(Config.read(folder / "config.json"))
    tensors = checkpoint.read(folder)
    state = {}
    for name, value in model.state_dict().items():
        stack = re.search(r"(.*\.experts)\.(w[123])$", name)
        if stack:
            names = [f"{stack[1]}.{e}.{stack[2]}" for e in range(len(value))]
            loaded = np.stack([checkpoint.unpack_fp4(tensors.pop(f"{n}.weight"), tensors.pop(f"{n}.scale"))
                               for n in names])
        else:
            loaded = _read_one(official_name(name), tensors)
        state[name] = torch.from_numpy(np.array(loaded))
    if tensors:
        raise ValueError(f"{folder}: unexpected tensor {min(tensors)}")
    model.load_state_dict(state)
    return model


def _read_one(name: str, tensors: dict[str, Tensor]) -> np.ndarray:
    tensor = tensors.pop(name)
    if tensor.dtype == "F8_E4M3":
        return checkpoint.unpack_fp8(tensor, tensors.pop(name.removesuffix("weight") + "scale"))
    return checkpoint.unpack_bf16(tensor) if tensor.dtype == "BF16" else tensor.array
