# SPDX-License-Identifier: MIT
"""The functions of ggml that the peers call."""

import ctypes
import pathlib

# enum ggml_type.
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
F32, F16 = TYPES["f32"], TYPES["f16"]
PREC_F32 = 10  # enum ggml_prec: what llama.cpp asks for


class InitParams(ctypes.Structure):
    """struct ggml_init_params."""

    _fields_ = [("bytes", ctypes.c_size_t), ("buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]


P, I32, I64, F, SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float, ctypes.c_size_t
# name: (library, result, arguments)
FUNCTIONS = {
    "ggml_version": ("ggml-base", ctypes.c_char_p, []),
    "ggml_init": ("ggml-base", P, [InitParams]),
    "ggml_free": ("ggml-base", None, [P]),
    "ggml_tensor_overhead": ("ggml-base", SIZE, []),
    "ggml_graph_overhead_custom": ("ggml-base", SIZE, [SIZE, ctypes.c_bool]),
    "ggml_permute": ("ggml-base", P, [P, P, I32, I32, I32, I32]),
    "ggml_flash_attn_ext": ("ggml-base", P, [P, P, P, P, P, F, F, F]),
    "ggml_flash_attn_ext_set_prec": ("ggml-base", None, [P, I32]),
    "ggml_new_tensor_4d": ("ggml-base", P, [P, I32, I64, I64, I64, I64]),
    "ggml_view_3d": ("ggml-base", P, [P, P, I64, I64, I64, SIZE, SIZE, SIZE]),
    "ggml_view_1d": ("ggml-base", P, [P, P, I64, SIZE]),
    "ggml_view_2d": ("ggml-base", P, [P, P, I64, I64, SIZE, SIZE]),
    "ggml_cpy": ("ggml-base", P, [P, P, P]),
    "ggml_cont": ("ggml-base", P, [P, P]),
    "ggml_transpose": ("ggml-base", P, [P, P]),
    "ggml_concat": ("ggml-base", P, [P, P, P, I32]),
    "ggml_reshape_3d": ("ggml-base", P, [P, P, I64, I64, I64]),
    "ggml_ssm_conv": ("ggml-base", P, [P, P, P]),
    "ggml_silu": ("ggml-base", P, [P, P]),
    "ggml_sigmoid": ("ggml-base", P, [P, P]),
    "ggml_softplus": ("ggml-base", P, [P, P]),
    "ggml_add": ("ggml-base", P, [P, P, P]),
    "ggml_mul": ("ggml-base", P, [P, P, P]),
    "ggml_scale": ("ggml-base", P, [P, P, F]),
    "ggml_rms_norm": ("ggml-base", P, [P, P, F]),
    "ggml_gated_delta_net": ("ggml-base", P, [P, P, P, P, P, P, P, I64]),
    "ggml_lightning_indexer": ("ggml-base", P, [P, P, P, P, P]),
    "ggml_top_k": ("ggml-base", P, [P, P, I32]),
    "ggml_new_graph_custom": ("ggml-base", P, [P, SIZE, ctypes.c_bool]),
    "ggml_build_forward_expand": ("ggml-base", None, [P, P]),
    "ggml_nbytes": ("ggml-base", SIZE, [P]),
    "ggml_row_size": ("ggml-base", SIZE, [I32, I64]),
    "ggml_quantize_chunk": ("ggml-base", SIZE, [I32, P, P, I64, I64, I64, P]),
    "ggml_backend_alloc_ctx_tensors": ("ggml-base", P, [P, P]),
    "ggml_backend_buffer_free": ("ggml-base", None, [P]),
    "ggml_backend_tensor_set": ("ggml-base", None, [P, P, SIZE, SIZE]),
    "ggml_backend_tensor_get": ("ggml-base", None, [P, P, SIZE, SIZE]),
    "ggml_backend_graph_compute": ("ggml-base", I32, [P, P]),
    "ggml_backend_cpu_init": ("ggml-cpu", P, []),
    "ggml_backend_cpu_set_n_threads": ("ggml-cpu", None, [P, I32]),
}


class Ggml:
    """The functions of FUNCTIONS as methods, without their prefix."""

    def __init__(self):
        import importlib.util  # only the folder is wanted: the package itself needs not be loaded

        folder = pathlib.Path(importlib.util.find_spec("llama_cpp").origin).parent / "lib"
        libraries = {
            name: ctypes.CDLL(str(folder / f"lib{name}.so"), mode=ctypes.RTLD_GLOBAL)
            for name in ("ggml-base", "ggml-cpu")
        }
        for name, (library, result, arguments) in FUNCTIONS.items():
            function = getattr(libraries[library], name)
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_"), function)
