//! Weight schemes: how groups of weights are stored.

/// How a tensor's weights are stored, one variant for each line of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Scheme {
    F32,
    F16,
    Bf16,
    Q8_0,
    Q4_0,
    Q4_1,
    Q6K,
}

/// Why values cannot be encoded.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum EncodeError {
    /// A NaN or an infinity, at this index of the row.
    #[error("value {value} at index {index} is not finite")]
    NotFinite {
        /// Index in the row.
        index: usize,
        /// The offending value.
        value: f32,
    },
    /// Kipp reads this scheme but does not write it.
    #[error("the scheme {0} is read but not written")]
    ReadOnly(&'static str),
}

impl Scheme {
    /// Every scheme, in registry order.
    pub const ALL: &'static [Scheme] =
        &[Scheme::F32, Scheme::F16, Scheme::Bf16, Scheme::Q8_0, Scheme::Q4_0, Scheme::Q4_1, Scheme::Q6K];

    fn facts(self) -> (&'static str, u32, usize, usize) {
        match self {
            Scheme::F32 => ("f32", 0, 1, 4),
            Scheme::F16 => ("f16", 1, 1, 2),
            Scheme::Bf16 => ("bf16", 30, 1, 2),
            Scheme::Q8_0 => ("q8_0", 8, 32, 34),
            Scheme::Q4_0 => ("q4_0", 2, 32, 18),
            Scheme::Q4_1 => ("q4_1", 3, 32, 20),
            Scheme::Q6K => ("q6_k", 14, 256, 210),
        }
    }

    /// The name, as flags and reports spell it: `q8_0`.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// The scheme of that name.
    pub fn from_name(name: &str) -> Option<Scheme> {
        Scheme::ALL.iter().copied().find(|s| s.name() == name)
    }

    /// The type id that GGUF files carry.
    pub fn ggml_type(self) -> u32 {
        self.facts().1
    }

    /// The scheme with that GGUF type id, if it is one that Kipp reads.
    pub fn from_ggml_type(id: u32) -> Option<Scheme> {
        Scheme::ALL.iter().copied().find(|s| s.ggml_type() == id)
    }

    /// Weights in one group (1 for dense schemes).
    pub fn group_len(self) -> usize {
        self.facts().2
    }

    /// Bytes of one group.
    pub fn group_bytes(self) -> usize {
        self.facts().3
    }

    /// Bytes of a row of `cols` weights; `None` when `cols` is no whole number of groups or the size overflows.
    pub fn row_bytes(self, cols: usize) -> Option<usize> {
        if !cols.is_multiple_of(self.group_len()) {
            return None;
        }
        (cols / self.group_len()).checked_mul(self.group_bytes())
    }

    /// Decodes one row: the definition of the scheme, used by the oracle and by tests.
    ///
    /// `bytes` is `row_bytes(out.len())` long.
    pub fn decode_row(self, bytes: &[u8], out: &mut [f32]) {
        let _ = (bytes, out);
        unimplemented!()
    }

    /// Encodes one row by plain rounding into `out`, `row_bytes(values.len())` long.
    pub fn encode_row(self, values: &[f32], out: &mut [u8]) -> Result<(), EncodeError> {
        let _ = (values, out);
        unimplemented!()
    }

    /// The index of the first weight of the row that decodes to NaN or infinity, if any.
    pub fn find_non_finite(self, bytes: &[u8]) -> Option<usize> {
        let _ = bytes;
        unimplemented!()
    }
}
