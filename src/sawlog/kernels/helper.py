"""Helpers of kernels: what is compiled into the kernels that call it, and no further.

Left to itself, Numba optimizes every jitted function and makes machine code of it, with wrappers for Python and for C,
only to optimize it again in each that calls it: half of what the first use after an installation took.
"""

from __future__ import annotations

from inspect import signature
from typing import Any

from numba.core import types
from numba.core.codegen import CPUCodegen, JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering

_MANAGERS_ARE_LASTING = "llvm_module" not in signature(CPUCodegen._function_pass_manager).parameters
"""Whether a pass manager is made for any module, as from Numba 0.62 on, or for one."""


class _Part(JITCodeLibrary):
    """The code of a helper, as its callers link it: they optimize it, and only they become machine code."""

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name: str, environment: Any) -> None:
        """Only object mode has an environment."""

    def get_pointer_to_function(self, name: str) -> int:
        """None; but all is known now."""
        self._ensure_finalized()
        return 0

    def _optimize_functions(self, ll_module: Any) -> None:
        """By one pass manager: to make one takes longer than what it does to a helper, and others are only declared."""
        if not _MANAGERS_ARE_LASTING:
            super()._optimize_functions(ll_module)
            return
        ll_module.data_layout = self._codegen._data_layout
        manager, builder = self._codegen._function_pass_manager()
        for function in ll_module.functions:
            if not function.is_declaration:
                manager.run(function, builder)

    def _optimize_final_module(self) -> None:
        """Nothing is gained before it is known who calls."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)
class _PartLowering(NativeLowering):
    _name = "lowering_of_a_part"

    def run_pass(self, state: Any) -> Any:
        state.library = _Part(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().run_pass(state)


_UNUSED = frozenset(
    {
        "WithLifting",
        "InlineClosureLikes",
        "DeadBranchPrune",
        "RewriteDynamicRaises",
        "MakeFunctionToJitFunction",
        "InlineInlinables",
        "FindLiterallyCalls",
        "LiteralUnroll",
        "LiteralPropagationSubPipelinePass",
        "InlineOverloads",
        "NopythonRewrites",
        "NoPythonSupportedFeatureValidation",
        "DumpParforDiagnostics",
    }
)
"""Passes for what no helper holds: closures, `with`, functions laid in before typing, expressions of whole arrays."""


class _PartCompiler(Compiler):
    def define_pipelines(self) -> Any:
        pipelines = super().define_pipelines()
        for pipeline in pipelines:
            pipeline.add_pass_after(_PartLowering, NativeLowering)
            unused = _UNUSED | {NativeLowering.__name__}
            pipeline.passes = [one for one in pipeline.passes if one[0].__name__ not in unused]
            pipeline.finalize()
        return pipelines


class Helper(CPUDispatcher):
    """A function that kernels call. For Python, which rarely does, it is compiled once more, whole.

    Args:
        py_func: The function.
        locals: See Numba.
        targetoptions: The options of `numba.njit`.
    """

    def __init__(self, py_func: Any, locals: Any = None, targetoptions: Any = None) -> None:
        options = {**(targetoptions or {}), "nopython": True}
        self._whole = CPUDispatcher(py_func, locals or {}, options)
        unwrapped = {**options, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
        super().__init__(py_func, locals or {}, unwrapped, _PartCompiler)

    def __call__(self, *args: Any) -> Any:
        """From Python."""
        return self._whole(*args)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What a kernel calls: for constants the same as for other numbers, instead of code for each of them."""
        return super().get_call_template(tuple(map(types.unliteral, args)), kws)
