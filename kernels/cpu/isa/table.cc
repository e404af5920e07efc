#include "kernels/cpu/isa/kernels.h"

#define BATON_STRING_(x) #x
#define BATON_STRING(x) BATON_STRING_(x)

namespace baton::kernels::BATON_ISA {

constinit const IsaKernels kTable = {
    .name = BATON_STRING(BATON_ISA),
    .widen = Widen,
    .gemm = Gemm,
    .fake_quant_fp8 = FakeQuantFp8,
    .fake_quant_fp4 = FakeQuantFp4,
    .decode_e4m3 = DecodeE4m3Row,
    .hadamard128 = Hadamard128,
    .mean_square = MeanSquare,
    .scale_row = ScaleRow,
    .hc_mix = HcMix,
    .hc_read = HcRead,
    .hc_write = HcWrite,
    .pool = Pool,
    .attention_row = AttendRow,
    .interleave = Interleave,
    .index_block = ScoreIndexBlock,
    .sum_rows = SumRows,
    .swiglu = Swiglu,
};

}  // namespace baton::kernels::BATON_ISA
