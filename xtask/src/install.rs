//! The tools that our steps need and a fresh machine lacks, installed by name, and only when absent.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::exec;
use crate::steps::Context;

/// The cargo-deny that `deny.toml` is written for.
const CARGO_DENY: &str = "0.20.2";

/// `cargo deny`, built once a machine. It runs for seconds and is built for minutes, so it is built fast, not optimized:
/// 3.5 minutes of processor time instead of over 10.
pub(crate) fn cargo_deny(context: &Context) -> Result<()> {
    let found = exec::finish(exec::cargo(&["deny", "--version"], &context.root))?;
    if found.code == Some(0) {
        return Ok(());
    }
    println!("   building cargo-deny {CARGO_DENY}, which this machine lacks");
    let args = ["install", "--locked", "--no-default-features", "--version", CARGO_DENY, "cargo-deny"];
    let mut install = exec::cargo(&args, &context.root);
    install.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");
    install.env("CARGO_PROFILE_RELEASE_LTO", "off");
    install.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16");
    install.env("CARGO_PROFILE_RELEASE_DEBUG", "false");
    exec::succeed(install).map(drop)
}

/// A C++ compiler: libFuzzer and llama.cpp are written in it.
pub(crate) fn cxx(context: &Context) -> Result<()> {
    debian(context, "c++", &["g++"])
}

/// What links and runs programs for 64-bit Arm: a cross compiler with its C library, and QEMU.
pub(crate) fn arm_emulation(context: &Context) -> Result<()> {
    debian(context, "aarch64-linux-gnu-gcc", &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"])?;
    debian(context, "qemu-aarch64", &["qemu-user"])
}

/// A browser that runs without a screen, and letters for it.
pub(crate) fn chromium(context: &Context) -> Result<()> {
    debian(context, "chromium", &["chromium", "fonts-dejavu-core"])
}

/// Debian packages, the first of which brings `program`.
fn debian(context: &Context, program: &str, packages: &[&str]) -> Result<()> {
    if on_path(program).is_some() {
        return Ok(());
    }
    println!("   installing Debian's {}, which this machine lacks", packages.join(", "));
    exec::succeed(exec::command("apt-get", &["update", "-q"], &context.root))?;
    let args = ["install", "-q", "-y", "--no-install-recommends"];
    let mut install = exec::command("apt-get", &args, &context.root);
    install.args(packages).env("DEBIAN_FRONTEND", "noninteractive");
    exec::succeed(install).map(drop)
}

/// Rust's standard library for another machine, by rustup.
pub(crate) fn rust_target(context: &Context, target: &str) -> Result<()> {
    let args = ["--target", target, "--print", "target-libdir"];
    let libraries = exec::succeed(exec::command("rustc", &args, &context.root))?.stdout;
    if Path::new(libraries.trim()).is_dir() {
        return Ok(());
    }
    println!("   installing Rust's standard library for {target}, which this machine lacks");
    exec::succeed(exec::command("rustup", &["target", "add", target], &context.root)).map(drop)
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Python packages from PyPI in a folder of our own under `target/`: the machine's Python stays as it is.
pub(crate) struct Python {
    folder: PathBuf,
}

impl Python {
    /// Installs what of `packages` is absent.
    pub(crate) fn with(context: &Context, packages: &[&str]) -> Result<Self> {
        let folder = context.target("tools/python");
        let missing: Vec<&str> = packages.iter().copied().filter(|package| !has(&folder, package)).collect();
        if !missing.is_empty() {
            println!("   installing from PyPI: {}", missing.join(", "));
            let mut pip =
                exec::command("python3", &["-m", "pip", "install", "--quiet", "--target"], &context.root);
            pip.arg(&folder).args(missing);
            exec::succeed(pip)?;
        }
        Ok(Self { folder })
    }

    /// A program that one of these packages brings.
    pub(crate) fn program(&self, name: &str, args: &[&str], dir: &Path) -> Result<Command> {
        let program = self.folder.join("bin").join(name);
        if !program.is_file() {
            bail!("PyPI's package brought no {}", program.display());
        }
        let mut command = exec::command(program, args, dir);
        command.env("PYTHONPATH", &self.folder);
        Ok(command)
    }

    /// Installs what a file of pinned versions lists, dependencies included, into a folder under `target/`.
    pub(crate) fn pinned(context: &Context, folder: &str, requirements: &Path) -> Result<Self> {
        debian(context, "python3", &["python3", "python3-pip"])?;
        let folder = context.target(folder);
        let pins = [requirements];
        if !is_installed(&folder, &pins)? {
            println!("   installing from PyPI: {}", requirements.display());
            let args = ["-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--target"];
            let mut pip = exec::command("python3", &args, &context.root);
            pip.arg(&folder).arg("--requirement").arg(requirements);
            exec::succeed(pip)?;
            set_installed(&folder, &pins)?;
        }
        Ok(Self { folder })
    }

    /// A script that may import these packages.
    pub(crate) fn script(&self, script: &Path, args: &[&str]) -> Result<Command> {
        let dir = script.parent().with_context(|| format!("{} lies nowhere", script.display()))?;
        let mut command = exec::command("python3", &[], dir);
        command.arg(script).args(args).env("PYTHONPATH", &self.folder).env("PYTHONDONTWRITEBYTECODE", "1");
        Ok(command)
    }

    /// The folder of these packages' programs.
    pub(crate) fn bin(&self) -> PathBuf {
        self.folder.join("bin")
    }
}

/// Packages from npm in a folder of our own under `target/`, and the scripts that import them: Node looks for packages
/// beside a script.
pub(crate) struct Node {
    folder: PathBuf,
}

impl Node {
    /// Installs what the `package-lock.json` of `scripts` pins and copies its scripts.
    pub(crate) fn pinned(context: &Context, folder: &str, scripts: &Path) -> Result<Self> {
        debian(context, "node", &["nodejs"])?;
        let target = context.target(folder);
        let pins = [scripts.join("package.json"), scripts.join("package-lock.json")];
        if !is_installed(&target, &pins)? {
            debian(context, "npm", &["npm"])?;
            println!("   installing from npm: {}", pins[1].display());
            for file in &pins {
                copy(file, &target)?;
            }
            exec::succeed(exec::command("npm", &["ci", "--no-audit", "--no-fund"], &target))?;
            set_installed(&target, &pins)?;
        }
        let entries =
            std::fs::read_dir(scripts).with_context(|| format!("cannot list {}", scripts.display()))?;
        for script in entries.flatten().map(|entry| entry.path()) {
            if script.extension().is_some_and(|extension| extension == "mjs") {
                copy(&script, &target)?;
            }
        }
        Ok(Self { folder: target })
    }

    /// A script that may import these packages.
    pub(crate) fn script(&self, name: &str, args: &[&str]) -> Command {
        exec::command("node", &[&[name], args].concat(), &self.folder)
    }
}

fn copy(file: &Path, folder: &Path) -> Result<()> {
    let name = file.file_name().with_context(|| format!("{} is no file", file.display()))?;
    std::fs::copy(file, folder.join(name)).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(())
}

/// The file that says what a folder was installed from.
const INSTALLED: &str = "installed-from";

/// Whether a folder holds what these files of pins ask for. One that does not is emptied.
fn is_installed(target: &Path, pins: &[impl AsRef<Path>]) -> Result<bool> {
    if std::fs::read(target.join(INSTALLED)).is_ok_and(|found| read_all(pins).is_ok_and(|pins| pins == found))
    {
        return Ok(true);
    }
    if target.exists() {
        std::fs::remove_dir_all(target).with_context(|| format!("cannot empty {}", target.display()))?;
    }
    folder(target)?;
    Ok(false)
}

fn set_installed(target: &Path, pins: &[impl AsRef<Path>]) -> Result<()> {
    let path = target.join(INSTALLED);
    std::fs::write(&path, read_all(pins)?).with_context(|| format!("cannot write {}", path.display()))
}

fn read_all(files: &[impl AsRef<Path>]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for file in files.iter().map(AsRef::as_ref) {
        bytes.extend(std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(bytes)
}

/// Whether pip has unpacked a package here: it leaves a folder `name-version.dist-info`.
fn has(folder: &Path, package: &str) -> bool {
    let name = package.split(['=', '<', '>']).next().unwrap_or(package).replace('-', "_").to_lowercase();
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    entries.flatten().any(|entry| {
        let entry = entry.file_name().to_string_lossy().to_lowercase();
        entry.ends_with(".dist-info") && entry.starts_with(&format!("{name}-"))
    })
}

/// Makes a folder and those above it.
pub(crate) fn folder(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("cannot make the folder {}", path.display()))
}
