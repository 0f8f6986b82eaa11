//! Sixteen lanes as two registers of eight.

/// Two registers: lanes 0 to 7 and 8 to 15.
#[derive(Clone, Copy)]
pub struct Pair<T>(pub(super) T, pub(super) T);

impl<T: Copy> Pair<T> {
    #[inline(always)]
    pub(super) fn map<U>(self, f: impl Fn(T) -> U) -> Pair<U> {
        Pair(f(self.0), f(self.1))
    }

    #[inline(always)]
    pub(super) fn zip<U: Copy, V>(self, other: Pair<U>, f: impl Fn(T, U) -> V) -> Pair<V> {
        Pair(f(self.0, other.0), f(self.1, other.1))
    }
}
