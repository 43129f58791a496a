//! Files and folders that only this user reads, whatever the umask: what an engine says may hold what nobody was asked to keep.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes a folder with those above it; folders that are there stay as they are.
pub fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A new, empty file in the place of whatever is there.
pub fn create_file(path: &Path) -> io::Result<File> {
    // A file that is there would keep its mode.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_this_user_reads_what_is_made_here() {
        let parent = tempfile::tempdir().unwrap();
        let (folder, file) = (parent.path().join("a/b"), parent.path().join("a/b/file"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        create_folder(&folder).unwrap();
        create_folder(&folder).unwrap();
        assert_eq!((mode(&folder), mode(&parent.path().join("a"))), (0o700, 0o700));
        std::fs::write(&file, "what was there before").unwrap();
        drop(create_file(&file).unwrap());
        assert_eq!((mode(&file), std::fs::metadata(&file).unwrap().len()), (0o600, 0));
    }
}
