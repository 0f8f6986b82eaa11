//! Files that a command writes: complete or not there at all. What was there before stays until the new file is whole.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::interrupt;

/// A file under way. Dropped without [`OutputFile::finish`] it leaves nothing behind.
pub(crate) struct OutputFile {
    path: PathBuf,
    /// Where the bytes go until the file is whole; `None` writes in place.
    partial: Option<PathBuf>,
    writer: BufWriter<File>,
}

impl OutputFile {
    /// Begins a file beside its final place. A pipe or a device is written directly: it cannot be renamed onto.
    pub(crate) fn create(path: &Path) -> anyhow::Result<OutputFile> {
        // Nothing can be renamed onto a folder, which would come to light only at the end of the work.
        anyhow::ensure!(!path.is_dir(), "{}: this is a folder", path.display());
        let found = std::fs::metadata(path).ok();
        let in_place = found.as_ref().is_some_and(|found| !found.is_file());
        let partial = (!in_place).then(|| partial_path(path));
        let target = partial.as_deref().unwrap_or(path);
        let mut options = OpenOptions::new();
        let file = match in_place {
            true => options.write(true).open(target),
            // Never follows a link that somebody put at a name that can be guessed.
            false => options.write(true).create_new(true).open(target),
        };
        let file = file.with_context(|| path.display().to_string())?;
        if let Some(partial) = &partial {
            interrupt::remove_on_end(partial);
        }
        let out = OutputFile { path: path.to_owned(), partial, writer: BufWriter::new(file) };
        // Who may read a file does not change because it is written anew.
        if let Some(found) = found.filter(std::fs::Metadata::is_file) {
            let kept = out.writer.get_ref().set_permissions(found.permissions());
            kept.with_context(|| path.display().to_string())?;
        }
        Ok(out)
    }

    /// Makes the file appear under its name.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        self.writer.flush().with_context(|| self.path.display().to_string())?;
        if let Some(partial) = &self.partial {
            // On the disk before the old file goes: a power cut must leave one of the two.
            self.writer.get_ref().sync_all().with_context(|| self.path.display().to_string())?;
            std::fs::rename(partial, &self.path).with_context(|| self.path.display().to_string())?;
            interrupt::keep_on_end(partial);
            self.partial = None;
        }
        Ok(())
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(partial) = self.partial.take() {
            // The command has failed already; an error here would hide why.
            let _ = std::fs::remove_file(&partial);
            interrupt::keep_on_end(&partial);
        }
    }
}

/// `OUT.f32` is written as `OUT.f32.incomplete-PID`, so that two runs do not meet.
fn partial_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".incomplete-{}", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_whole_or_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.f32");
        std::fs::write(&path, "old").unwrap();

        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");

        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"new").unwrap();
        file.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_is_written_anew_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        for mode in [0o600, 0o644] {
            std::fs::write(&path, "old").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            OutputFile::create(&path).unwrap().finish().unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = OutputFile::create(Path::new("/nowhere/out.f32")).err().unwrap();
        assert!(format!("{error:#}").starts_with("/nowhere/out.f32: "));
    }
}
