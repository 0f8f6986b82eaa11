//! Every scheme of the registry on every kernel class of this machine.

mod attention;
mod elementwise;
mod lanes;
mod product;
#[cfg(target_arch = "x86_64")]
mod speed;
mod tiles;

use kipp_kernels::{KernelClass, Kernels, select};

/// The kernels that this machine can run, the scalar ones first.
fn all_kernels() -> Vec<&'static dyn Kernels> {
    KernelClass::available().into_iter().filter_map(select).collect()
}

fn scalar() -> &'static dyn Kernels {
    all_kernels()[0]
}

#[test]
fn classes_have_names_and_the_scalar_one_is_everywhere() {
    for &class in KernelClass::ALL {
        assert_eq!(KernelClass::from_name(class.name()), Some(class));
    }
    assert_eq!(KernelClass::available()[0], KernelClass::Scalar);
    for class in KernelClass::available() {
        assert_eq!(select(class).unwrap().class(), class);
    }
    assert!(KernelClass::available().contains(&KernelClass::best()));
}
