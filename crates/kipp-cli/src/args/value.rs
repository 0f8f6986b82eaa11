//! Values of flags, parsed with their ranges, so that clap refuses what is out of range and names the flag.

use kipp::Scheme;
use kipp::convert::WRITTEN_SCHEMES;
use kipp::kv::KvScheme;
use kipp_kernels::Activations;
use kipp_kernels::kernels::KernelClass;

/// A whole number of `T` from `low` to `high`.
pub(crate) fn whole<T>(text: &str, low: T, high: T) -> Result<T, String>
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    match text.parse::<T>() {
        Ok(value) if value >= low && value <= high => Ok(value),
        _ => Err(format!("must be a whole number from {low} to {high}")),
    }
}

/// A number that `holds`; the condition must be written so that NaN fails.
pub(crate) fn number(text: &str, holds: impl Fn(f64) -> bool, range: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if holds(value) => Ok(value),
        _ => Err(format!("must be a number, {range}")),
    }
}

/// The variable of a flag that is on or off.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "" | "0" | "false" | "no" | "off" => Ok(false),
        _ => Err("must be 1, true, yes or on, or else 0, false, no or off".to_owned()),
    }
}

/// More threads than any machine has cores only wait for each other.
pub(crate) fn threads(text: &str) -> Result<usize, String> {
    whole(text, 1, 1024)
}

/// Positions of a sequence. 2^30 is the most that a model file may name.
pub(crate) fn context(text: &str) -> Result<usize, String> {
    whole(text, 1, 1 << 30)
}

/// Rows a step. Beyond 65,536 the activations alone take gigabytes and nothing gets faster.
pub(crate) fn step_tokens(text: &str) -> Result<usize, String> {
    whole(text, 1, 65_536)
}

/// MiB of keys and values; up to an exbibyte, so that bytes can be counted.
pub(crate) fn kv_mib(text: &str) -> Result<usize, String> {
    whole(text, 1, 1 << 40)
}

/// A window of one token scores nothing.
pub(crate) fn window(text: &str) -> Result<usize, String> {
    whole(text, 2, 1 << 30)
}

/// Tokens between the beginnings of two windows.
pub(crate) fn stride(text: &str) -> Result<usize, String> {
    whole(text, 1, 1 << 30)
}

/// Tokens of a completion; 0 evaluates the prompt only.
pub(crate) fn max_tokens(text: &str) -> Result<usize, String> {
    whole(text, 0, usize::MAX)
}

/// Tokens of a measurement; 0 measures nothing. 2^30 is the most positions that a model file may name.
pub(crate) fn bench_tokens(text: &str) -> Result<usize, String> {
    whole(text, 0, 1 << 30)
}

/// Sequences of a batch: more than the longest step has rows for do not fit one.
pub(crate) fn bench_sequences(text: &str) -> Result<usize, String> {
    whole(text, 1, 65_536)
}

/// Runs of a measurement. A thousand take days.
pub(crate) fn bench_runs(text: &str) -> Result<usize, String> {
    whole(text, 1, 1000)
}

/// How many times YaRN stretches the context; the bound on the result is the model's matter.
pub(crate) fn rope_factor(text: &str) -> Result<f64, String> {
    number(text, |v| v >= 1.0 && v.is_finite(), "finite and at least 1")
}

/// 0 takes the most likely token.
pub(crate) fn temperature(text: &str) -> Result<f64, String> {
    number(text, |v| v >= 0.0 && v.is_finite(), "finite and 0 or more")
}

/// A probability.
pub(crate) fn probability(text: &str) -> Result<f64, String> {
    number(text, |v| (0.0..=1.0).contains(&v), "from 0 to 1")
}

/// 0 and -1 are off.
pub(crate) fn top_k(text: &str) -> Result<i64, String> {
    whole(text, -1, i64::MAX)
}

/// A divisor.
pub(crate) fn repetition_penalty(text: &str) -> Result<f64, String> {
    number(text, |v| v > 0.0 && v <= 1000.0, "above 0, up to 1000")
}

/// Taken off a logit.
pub(crate) fn penalty(text: &str) -> Result<f64, String> {
    number(text, |v| (-2.0..=2.0).contains(&v), "from -2 to 2")
}

/// Any i64 or u64, as its bits.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    let signed = || text.parse::<i64>().map(i64::cast_unsigned);
    text.parse::<u64>().or_else(|_| signed()).map_err(|_| "must be a whole number of 64 bits".to_owned())
}

/// A stop string. An empty one would stop before anything.
pub(crate) fn stop(text: &str) -> Result<String, String> {
    match text {
        "" => Err("must not be empty".to_owned()),
        text => Ok(text.to_owned()),
    }
}

/// The kernel classes that a user asks for; the best that the machine runs where nothing is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Classes {
    pub(crate) matmul: Option<KernelClass>,
    pub(crate) attention: Option<KernelClass>,
}

/// A kernel class for everything, or `matmul=CLASS,attention=CLASS`, one of which may be absent.
pub(crate) fn kernels(text: &str) -> Result<Classes, String> {
    if !text.contains('=') {
        let class = Some(class(text)?);
        return Ok(Classes { matmul: class, attention: class });
    }
    let mut classes = Classes::default();
    for part in text.split(',') {
        match part.split_once('=') {
            Some(("matmul", name)) if classes.matmul.is_none() => {
                classes.matmul = Some(class(name)?);
            }
            Some(("attention", name)) if classes.attention.is_none() => {
                classes.attention = Some(class(name)?);
            }
            _ => return Err("must be a class, or matmul=CLASS,attention=CLASS".to_owned()),
        }
    }
    Ok(classes)
}

/// One kernel class.
pub(crate) fn class(name: &str) -> Result<KernelClass, String> {
    KernelClass::from_name(name)
        .ok_or_else(|| unknown(name, KernelClass::ALL.iter().map(|class| class.name())))
}

/// Coding of activations.
pub(crate) fn activations(name: &str) -> Result<Activations, String> {
    Activations::from_name(name)
        .ok_or_else(|| unknown(name, Activations::ALL.iter().map(|coding| coding.name())))
}

/// Storage of keys and values.
pub(crate) fn kv(name: &str) -> Result<KvScheme, String> {
    KvScheme::from_name(name).ok_or_else(|| unknown(name, KvScheme::ALL.iter().map(|scheme| scheme.name())))
}

/// A weight scheme that Kipp writes.
pub(crate) fn written_scheme(name: &str) -> Result<Scheme, String> {
    let known = || WRITTEN_SCHEMES.iter();
    known()
        .find(|scheme| scheme.name() == name)
        .copied()
        .ok_or_else(|| unknown(name, known().map(|s| s.name())))
}

/// Weight schemes: one, or `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schemes(pub(crate) &'static [Scheme]);

/// A weight scheme of any kind, or `all`.
pub(crate) fn weight_schemes(name: &str) -> Result<Schemes, String> {
    if name == "all" {
        return Ok(Schemes(Scheme::ALL));
    }
    let known = Scheme::ALL.iter().map(|scheme| scheme.name());
    match Scheme::ALL.iter().position(|scheme| scheme.name() == name) {
        Some(at) => Ok(Schemes(&Scheme::ALL[at..=at])),
        None => Err(unknown(name, known.chain(["all"]))),
    }
}

fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known = known.collect::<Vec<_>>().join(", ");
    if name.is_empty() { format!("must be one of {known}") } else { format!("{name} is none of {known}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h18_values_out_of_range_are_refused_and_nan_is_one() {
        for text in ["-1", "NaN", "nan", "inf", "-inf", "1e999", "", "x", "\"0.5\"", "null"] {
            assert!(temperature(text).is_err(), "{text}");
        }
        for (text, expected) in [("0", 0.0), ("-0.0", 0.0), ("1e-39", 1e-39), ("1e30", 1e30)] {
            assert_eq!(temperature(text), Ok(expected));
        }
        for text in ["-0.1", "1.1", "nan"] {
            assert!(probability(text).is_err(), "{text}");
        }
        assert!(repetition_penalty("0").is_err() && repetition_penalty("1000").is_ok());
        assert!(penalty("2.1").is_err() && penalty("-2").is_ok());
        assert!(top_k("-2").is_err() && top_k("-1").is_ok() && top_k("1000000000").is_ok());
        assert!(rope_factor("0.5").is_err() && rope_factor("inf").is_err() && rope_factor("4").is_ok());
        assert!(threads("0").is_err() && threads("-1").is_err());
        assert!(context("0").is_err() && window("1").is_err() && step_tokens("0").is_err());
        assert!(max_tokens("0").is_ok() && max_tokens("-1").is_err() && max_tokens("1.5").is_err());
        assert!(stop("").is_err());
    }

    #[test]
    fn a_switch_is_on_or_off_and_nothing_in_between() {
        assert!(["1", "true", "Yes", "ON"].iter().all(|text| switch(text) == Ok(true)));
        assert!(["", "0", "FALSE", "no", "off"].iter().all(|text| switch(text) == Ok(false)));
        assert!(["maybe", "2", " 1", "disabled"].iter().all(|text| switch(text).is_err()));
    }

    #[test]
    fn seeds_are_the_bits_of_any_64_bit_number() {
        assert_eq!(seed("0"), Ok(0));
        assert_eq!(seed("-1"), Ok(u64::MAX));
        assert_eq!(seed("9223372036854775808"), Ok(1 << 63));
        assert_eq!(seed("-9223372036854775808"), Ok(1 << 63));
        assert!(seed("18446744073709551616").is_err() && seed("1.0").is_err());
    }

    #[test]
    fn names_are_those_of_the_library_and_others_are_refused_with_the_list() {
        let classes = |matmul, attention| Ok(Classes { matmul, attention });
        let (scalar, avx2) = (Some(KernelClass::Scalar), Some(KernelClass::Avx2));
        assert_eq!(kernels("scalar"), classes(scalar, scalar));
        assert_eq!(kernels("matmul=scalar,attention=avx2"), classes(scalar, avx2));
        assert_eq!(kernels("matmul=scalar"), classes(scalar, None));
        assert!(kernels("matmul=scalar,matmul=scalar").unwrap_err().contains("must be"));
        assert!(kernels("warp=scalar").unwrap_err().contains("must be"));
        assert!(kernels("avx3").unwrap_err().starts_with("avx3 is none of "));
        assert!(kernels("").unwrap_err().starts_with("must be one of scalar, "));
        assert!(kernels("matmul=").unwrap_err().starts_with("must be one of scalar, "));
        assert_eq!(activations("s8"), Ok(Activations::S8));
        assert!(activations("S8").is_err());
        assert_eq!(kv("f32"), Ok(KvScheme::F32));
        assert!(kv("q3").is_err());
        assert_eq!(written_scheme("q4_0"), Ok(Scheme::Q4_0));
        assert_eq!(weight_schemes("q4_0").map(|schemes| schemes.0), Ok(&[Scheme::Q4_0][..]));
        assert_eq!(weight_schemes("all").map(|schemes| schemes.0), Ok(Scheme::ALL));
        assert!(weight_schemes("q9").unwrap_err().ends_with(", all"));
        assert!(written_scheme("q6_k").is_err() && written_scheme("q9").is_err());
    }
}
