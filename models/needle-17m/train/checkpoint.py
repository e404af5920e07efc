"""Official checkpoint format: safetensors files with an index, FP8 and FP4 packing. NumPy only.

A tensor is a pair of its safetensors type and an array: F8_E4M3, F8_E8M0 and packed FP4 (I8) are
arrays of bytes, BF16 an array of uint16.
"""

import dataclasses
import json
import pathlib

import numpy as np

FP8_BLOCK, FP4_GROUP = 128, 32
FP8_MAX, FP4_MAX = 448.0, 6.0
INDEX = "model.safetensors.index.json"
STORAGE = {"F32": "<f4", "I32": "<i4", "BF16": "<u2", "I64": "<i8", "F8_E4M3": "u1", "F8_E8M0": "u1", "I8": "u1"}


@dataclasses.dataclass(frozen=True)
class Tensor:
    dtype: str
    array: np.ndarray


def _e4m3_values() -> np.ndarray:
    """Of the non-negative codes 0..126; 127 is NaN."""
    codes = np.arange(127)
    exponent, fraction = codes >> 3, (codes & 7) / 8
    return np.where(exponent == 0, fraction * 2.0**-6, (1 + fraction) * 2.0**(exponent - 7.0))


E4M3 = _e4m3_values()
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def _nearest_even(grid: np.ndarray, magnitudes: np.ndarray) -> np.ndarray:
    """Index of the nearest value of an ascending grid, ties to the even index."""
    middles = (grid[1:] + grid[:-1]) / 2
    below, above = (np.searchsorted(middles, magnitudes, side) for side in ("left", "right"))
    return np.where(below % 2 == 0, below, above)


def _signed_codes(grid: np.ndarray, x: np.ndarray, sign_bit: int) -> np.ndarray:
    return (_nearest_even(grid, np.abs(x)) + sign_bit * np.signbit(x)).astype(np.uint8)


def power_of_two_above(x: np.ndarray) -> np.ndarray:
    """The smallest power of two >= x, for normal positive FP32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x7FFFFF)) & np.uint32(0x7F800000)).view(np.float32)


def _scale_bytes(scale: np.ndarray) -> np.ndarray:
    return (scale.view(np.uint32) >> 23).astype(np.uint8)


def _scales(codes: np.ndarray) -> np.ndarray:
    return np.ldexp(np.float32(1), codes.astype(np.int32) - 127)


def pack_fp8(name: str, weight: np.ndarray) -> dict[str, Tensor]:
    """FP32 [out, in], multiples of 128 -> weight and scale, one scale a block."""
    rows, columns = (n // FP8_BLOCK for n in weight.shape)
    if weight.shape != (rows * FP8_BLOCK, columns * FP8_BLOCK):
        raise ValueError(f"{name}: shape {weight.shape} is not a multiple of {FP8_BLOCK}")
    blocks = weight.reshape(rows, FP8_BLOCK, columns, FP8_BLOCK)
    amax = np.abs(blocks).max((1, 3), keepdims=True).clip(np.float32(1e-4))
    scale = power_of_two_above(amax * np.float32(1 / FP8_MAX))
    return {f"{name}.weight": Tensor("F8_E4M3", _signed_codes(E4M3, blocks / scale, 128).reshape(weight.shape)),
            f"{name}.scale": Tensor("F8_E8M0", _scale_bytes(scale).reshape(rows, columns))}


def unpack_fp8(weight: Tensor, scale: Tensor) -> np.ndarray:
    signs = np.where(weight.array & 128, np.float32(-1), np.float32(1))
    # Code 127 is NaN, which no weight may be.
    values = signs * np.append(E4M3, np.nan).astype(np.float32)[weight.array & 127]
    return values * np.repeat(np.repeat(_scales(scale.array), FP8_BLOCK, 0), FP8_BLOCK, 1)


def pack_fp4(name: str, weight: np.ndarray) -> dict[str, Tensor]:
    """FP32 [out, in] -> two columns a byte, the even one in the low nibble; a scale per row and 32 columns."""
    if weight.shape[1] % FP4_GROUP:
        raise ValueError(f"{name}: {weight.shape[1]} columns are not a multiple of {FP4_GROUP}")
    groups = weight.reshape(len(weight), -1, FP4_GROUP)
    amax = np.abs(groups).max(2, keepdims=True).clip(np.float32(FP4_MAX * 2.0**-126))
    scale = power_of_two_above(amax * np.float32(1 / FP4_MAX))
    codes = _signed_codes(E2M1, groups / scale, 8).reshape(weight.shape)
    return {f"{name}.weight": Tensor("I8", codes[:, ::2] | codes[:, 1::2] << 4),
            f"{name}.scale": Tensor("F8_E8M0", _scale_bytes(scale)[..., 0])}


def unpack_fp4(weight: Tensor, scale: Tensor) -> np.ndarray:
    codes = np.stack((weight.array & 15, weight.array >> 4), -1).reshape(len(weight.array), -1)
    values = np.where(codes & 8, np.float32(-1), np.float32(1)) * E2M1.astype(np.float32)[codes & 7]
    return values * np.repeat(_scales(scale.array), FP4_GROUP, 1)


def pack_bf16(values: np.ndarray) -> Tensor:
    """Of FP32 values that BF16 holds exactly."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    if np.any(bits & 0xFFFF):
        raise ValueError("not BF16 values: round them before they are packed")
    return Tensor("BF16", (bits >> 16).astype(np.uint16))


def unpack_bf16(tensor: Tensor) -> np.ndarray:
    return (tensor.array.astype(np.uint32) << 16).view(np.float32)


def write(folder: pathlib.Path, shards: list[dict[str, Tensor]]) -> None:
    """Safetensors files and their index."""
    folder.mkdir(parents=True, exist_ok=True)
    weight_map = {}
    for number, tensors in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_file(folder / file, tensors, {"format": "pt"})
        weight_map |= dict.fromkeys(tensors, file)
    total = sum(tensor.array.nbytes for tensors in shards for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(index, indent=1))


def write_file(path: pathlib.Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Data is ordered by the size of its elements, so that every tensor is aligned."""
    ordered = sorted(tensors, key=lambda name: (-np.dtype(STORAGE[tensors[name].dtype]).itemsize, name))
    header, offset = {"__metadata__": metadata}, 0
    for name in ordered:
        array = tensors[name].array
        header[name] = {"dtype": tensors[name].dtype, "shape": list(array.shape),
                        "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as out:
        out.write(len(encoded).to_bytes(8, "little") + encoded)
        for name in ordered:
            if tensors[name].array.dtype != STORAGE[tensors[name].dtype]:
                raise ValueError(f"{name}: {tensors[name].array.dtype} is not stored as {tensors[name].dtype}")
            out.write(np.ascontiguousarray(tensors[name].array).tobytes())


def read_file(path: pathlib.Path) -> dict[str, Tensor]:
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:begin])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        storage = np.dtype(STORAGE[entry["dtype"]])
        first, last = entry["data_offsets"]
        array = np.frombuffer(content, storage, (last - first) // storage.itemsize, begin + first)
        tensors[name] = Tensor(entry["dtype"], array.reshape(entry["shape"]))
    return tensors


def read(folder: pathlib.Path) -> dict[str, Tensor]:
    files = json.loads((folder / INDEX).read_text())["weight_map"]
    tensors = {}
    for file in sorted(set(files.values())):
        tensors |= read_file(folder / file)
    if missing := sorted(set(files) - set(tensors)):
        raise ValueError(f"{folder}: the index names {missing[0]}, which no file holds")
    return tensors
