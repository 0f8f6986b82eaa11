//! The tensor types of the GGUF format: names and sizes, also of those that Kipp does not read, so that a refusal can
//! say what was found.

use kipp_kernels::Scheme;

/// One tensor type of the format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorType {
    pub(crate) id: u32,
    pub(crate) name: &'static str,
    /// Weights in one group; the first dimension is a whole number of groups.
    pub(crate) group_len: u64,
    /// Bytes of one group.
    pub(crate) group_bytes: u64,
}

const fn of(id: u32, name: &'static str, group_len: u64, group_bytes: u64) -> TensorType {
    TensorType { id, name, group_len, group_bytes }
}

/// Types in use, from the format's published list.
const TYPES: &[TensorType] = &[
    of(0, "f32", 1, 4),
    of(1, "f16", 1, 2),
    of(2, "q4_0", 32, 18),
    of(3, "q4_1", 32, 20),
    of(6, "q5_0", 32, 22),
    of(7, "q5_1", 32, 24),
    of(8, "q8_0", 32, 34),
    of(9, "q8_1", 32, 36),
    of(10, "q2_k", 256, 84),
    of(11, "q3_k", 256, 110),
    of(12, "q4_k", 256, 144),
    of(13, "q5_k", 256, 176),
    of(14, "q6_k", 256, 210),
    of(15, "q8_k", 256, 292),
    of(16, "iq2_xxs", 256, 66),
    of(17, "iq2_xs", 256, 74),
    of(18, "iq3_xxs", 256, 98),
    of(19, "iq1_s", 256, 50),
    of(20, "iq4_nl", 32, 18),
    of(21, "iq3_s", 256, 110),
    of(22, "iq2_s", 256, 82),
    of(23, "iq4_xs", 256, 136),
    of(24, "i8", 1, 1),
    of(25, "i16", 1, 2),
    of(26, "i32", 1, 4),
    of(27, "i64", 1, 8),
    of(28, "f64", 1, 8),
    of(29, "iq1_m", 256, 56),
    of(30, "bf16", 1, 2),
    of(34, "tq1_0", 256, 54),
    of(35, "tq2_0", 256, 66),
    of(39, "mxfp4", 32, 17),
];

/// Types that the format once had and dropped; their layouts are no longer defined.
const REMOVED: &[(u32, &str)] = &[
    (4, "q4_2"),
    (5, "q4_3"),
    (31, "q4_0_4_4"),
    (32, "q4_0_4_8"),
    (33, "q4_0_8_8"),
    (36, "iq4_nl_4_4"),
    (37, "iq4_nl_4_8"),
    (38, "iq4_nl_8_8"),
];

impl TensorType {
    /// The type with that id, if it is one in use.
    pub(crate) fn from_id(id: u32) -> Option<TensorType> {
        TYPES.iter().copied().find(|t| t.id == id)
    }

    /// The name of a removed type.
    pub(crate) fn removed(id: u32) -> Option<&'static str> {
        REMOVED.iter().find(|(removed, _)| *removed == id).map(|(_, name)| *name)
    }

    /// The scheme, where Kipp reads this type.
    pub(crate) fn scheme(self) -> Option<Scheme> {
        Scheme::from_ggml_type(self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_agree_with_the_schemes() {
        for scheme in Scheme::ALL {
            let t = TensorType::from_id(scheme.ggml_type()).unwrap();
            assert_eq!(t.name, scheme.name());
            assert_eq!(t.group_len, scheme.group_len() as u64);
            assert_eq!(t.group_bytes, scheme.group_bytes() as u64);
        }
    }
}
