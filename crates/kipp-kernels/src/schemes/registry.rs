//! THE list of weight schemes. A scheme is one file and one line here; the `Scheme` enum, the only `match` on schemes
//! and every test that must hold for all schemes come from this list.

use super::WeightScheme;

/// Something to do with a scheme known only at run time, written once over its type.
pub trait SchemeVisitor {
    /// What comes out.
    type Output;

    /// Runs with the scheme's type.
    fn visit<S: WeightScheme>(self) -> Self::Output;
}

macro_rules! schemes {
    ($($(#[$doc:meta])* $variant:ident => $implementation:ty,)*) => {
        /// How a tensor's weights are stored, one variant for each line of the registry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Scheme {
            $($(#[$doc])* $variant,)*
        }

        impl Scheme {
            /// Every scheme, in registry order.
            pub const ALL: &'static [Scheme] = &[$(Scheme::$variant),*];

            /// Calls the visitor with this scheme's type. The only `match` on schemes.
            #[inline]
            pub fn visit<V: SchemeVisitor>(self, visitor: V) -> V::Output {
                match self {
                    $(Scheme::$variant => visitor.visit::<$implementation>(),)*
                }
            }
        }
    };
}

schemes! {
    /// 32-bit floats.
    F32 => super::f32::F32,
    /// IEEE 16-bit floats.
    F16 => super::f16::F16,
    /// The upper half of a 32-bit float.
    Bf16 => super::bf16::Bf16,
    /// Groups of 32 signed bytes with an f16 scale.
    Q8_0 => super::q8_0::Q8_0,
    /// Groups of 32 nibbles, centred on 8, with an f16 scale.
    Q4_0 => super::q4_0::Q4_0,
    /// Groups of 32 nibbles with an f16 scale and an f16 minimum.
    Q4_1 => super::q4_1::Q4_1,
    /// Super-blocks of 256 six-bit codes, a byte scale for each 16, an f16 scale for all.
    Q6K => super::q6_k::Q6K,
    /// Super-blocks of 256 five-bit codes, a six-bit scale and minimum for each 32, f16 factors of both.
    Q5K => super::q5_k::Q5K,
    /// Super-blocks of 256 nibbles, a six-bit scale and minimum for each 32, f16 factors of both.
    Q4K => super::q4_k::Q4K,
    /// Super-blocks of 256 three-bit codes, a six-bit scale for each 16, an f16 scale for all.
    Q3K => super::q3_k::Q3K,
    /// Super-blocks of 256 two-bit codes, a four-bit scale and minimum for each 16, f16 factors of both.
    Q2K => super::q2_k::Q2K,
    /// Groups of 32 five-bit codes, centred on 16, with an f16 scale.
    Q5_0 => super::q5_0::Q5_0,
    /// Groups of 32 five-bit codes with an f16 scale and an f16 minimum.
    Q5_1 => super::q5_1::Q5_1,
    /// Groups of 32 indices into a table of 16 values, with an f16 scale.
    Iq4Nl => super::iq4_nl::Iq4Nl,
    /// Super-blocks of 256 indices into the table of iq4_nl, a six-bit scale for each 32, an f16 scale for all.
    Iq4Xs => super::iq4_xs::Iq4Xs,
}
