//! Building llama.cpp, once, in `target/peer`. Its source comes from PyPI inside the source package of its Python binding,
//! because package registries are all that a machine of ours is sure to reach.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::exec;
use crate::install::{self, Python};
use crate::steps::{Context, Report};

use super::{folder, text};

/// The binding whose source package vendors the llama.cpp that the committed reference files were made with.
const BINDING: &str = "llama-cpp-python";
const VERSION: &str = "0.3.36";

/// Its programs that the steps use.
const PROGRAMS: &[&str] = &["llama-quantize", "llama-completion"];

/// For this processor, and without what needs a network, a browser or a GPU.
const OPTIONS: &[&str] = &[
    "-G",
    "Ninja",
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_NATIVE=ON",
    "-DGGML_OPENMP=ON",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_BUILD_APP=OFF",
];

/// llama.cpp, built.
pub(super) struct Llama {
    bin: PathBuf,
    /// `testdata/make/llama_logits.cpp`, built against it.
    logits: PathBuf,
}

impl Llama {
    /// Builds what is not there yet.
    pub(super) fn ready(context: &Context) -> Result<Self> {
        let build = folder(context).join("build");
        let llama = Self { bin: build.join("bin"), logits: folder(context).join("llama_logits") };
        install::cxx(context)?;
        if !PROGRAMS.iter().all(|program| llama.bin.join(program).is_file()) {
            compile(context, &source(context)?, &build)?;
        }
        let program = context.root.join("testdata/make/llama_logits.cpp");
        if newer(&program, &llama.logits) {
            llama.compile_logits(context, &source(context)?, &program)?;
        }
        Ok(llama)
    }

    /// One of [`PROGRAMS`].
    pub(super) fn program(&self, context: &Context, name: &str, args: &[&str]) -> Result<exec::Done> {
        exec::succeed(exec::command(self.bin.join(name), args, &context.root))
    }

    /// Logits of the ids in a file of u32, every position in one batch, written to a file of f32.
    pub(super) fn logits(&self, context: &Context, model: &str, ids: &str, out: &str) -> Result<()> {
        exec::succeed(exec::command(&self.logits, &[model, ids, out], &context.root)).map(drop)
    }

    fn compile_logits(&self, context: &Context, source: &Path, program: &Path) -> Result<()> {
        let bin = text(&self.bin)?;
        let mut cxx = exec::command("c++", &["-O2", "-std=c++17"], &context.root);
        cxx.arg("-I").arg(source.join("include")).arg("-I").arg(source.join("ggml/include")).arg(program);
        cxx.arg("-o").arg(&self.logits).args(["-L", bin, "-lllama", "-lggml", "-lggml-base"]);
        cxx.arg(format!("-Wl,-rpath,{bin}"));
        exec::succeed(cxx).map(drop)
    }
}

pub(crate) fn step(context: &Context) -> Result<Report> {
    Llama::ready(context)?;
    let mut report = Report::default();
    report.say(format!("llama.cpp of {BINDING} {VERSION}"));
    Ok(report)
}

/// llama.cpp's source tree, downloaded if absent.
fn source(context: &Context) -> Result<PathBuf> {
    let folder = folder(context);
    let package = folder.join(format!("llama_cpp_python-{VERSION}"));
    let source = package.join("vendor/llama.cpp");
    if source.join("CMakeLists.txt").is_file() {
        return Ok(source);
    }
    install::folder(&folder)?;
    // Only the package itself as source: what builds its metadata may come ready-made.
    let args =
        ["-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", BINDING, "--dest", text(&folder)?];
    let mut pip = exec::command("python3", &args, &context.root);
    pip.arg(format!("{BINDING}=={VERSION}"));
    exec::succeed(pip)?;
    let archive = folder.join(format!("llama_cpp_python-{VERSION}.tar.gz"));
    exec::succeed(exec::command("tar", &["xzf", text(&archive)?], &folder))?;
    if !source.join("CMakeLists.txt").is_file() {
        bail!("the source package of {BINDING} {VERSION} has no vendor/llama.cpp");
    }
    Ok(source)
}

fn compile(context: &Context, source: &Path, build: &Path) -> Result<()> {
    println!("   building llama.cpp, which takes some minutes");
    let python = Python::with(context, &["cmake", "ninja"])?;
    let mut configure = python.program("cmake", &["-S", text(source)?, "-B", text(build)?], &context.root)?;
    configure.args(OPTIONS).arg(format!("-DCMAKE_MAKE_PROGRAM={}", text(&python.bin().join("ninja"))?));
    exec::succeed(configure)?;
    let mut make = python.program("cmake", &["--build", text(build)?, "--target"], &context.root)?;
    make.args(PROGRAMS);
    exec::succeed(make).context("building llama.cpp").map(drop)
}

/// Whether `made` is absent or older than what it is made from.
fn newer(from: &Path, made: &Path) -> bool {
    let time = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    time(made).is_none_or(|made| time(from).is_some_and(|from| from > made))
}
