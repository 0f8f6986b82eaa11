//! What measuring taught about processors and no feature bit tells: figures stand in `docs/decisions/009`.

use std::sync::LazyLock;

/// Asked once: under a hypervisor the question takes microseconds.
static IS_INTEL: LazyLock<bool> = LazyLock::new(is_intel);

#[cfg(target_arch = "x86_64")]
fn is_intel() -> bool {
    crate::isa::avx512::vendor() == *b"GenuineIntel"
}

#[cfg(not(target_arch = "x86_64"))]
fn is_intel() -> bool {
    false
}

/// Whether a dot product of bf16 pairs takes longer than the two multiply-adds that it stands for.
pub(crate) fn slow_bf16_dot() -> bool {
    *IS_INTEL
}

/// Bytes of weights to ask for ahead of their use where few tokens (12 at most) meet them, so that memory is what limits
/// the product; none, if zero.
pub(crate) fn prefetch_ahead(tokens: usize) -> usize {
    match tokens {
        _ if *IS_INTEL => 8 << 10,
        1 => 1 << 10,
        2..=4 => 0,
        _ => 8 << 10,
    }
}
