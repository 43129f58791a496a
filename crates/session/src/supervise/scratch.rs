//! An engine's private temporary folder. Only this user may enter it, and only a folder that this program may have made is removed.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use tempfile::TempDir;

const PREFIX: &str = "autotune-";
/// How many letters and digits stand behind the prefix.
const DRAWN: usize = 6;

/// A new folder of mode 0700, since vLLM's sockets lie there; it is removed when the value is dropped, unless it is kept. A socket's path has
/// at most 107 bytes, so the folder has a short path: it lies in the system's temporary folder.
pub(super) fn make() -> io::Result<TempDir> {
    let mode = std::fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix(PREFIX).rand_bytes(DRAWN).permissions(mode).tempdir()
}

/// Removes the folder that a journal names, if it can be one of [`make`]: a journal may be damaged or forged. Returns whether it was removed.
pub fn remove_scratch(folder: &Path) -> bool {
    is_ours(folder) && std::fs::remove_dir_all(folder).is_ok()
}

/// Whether a folder is named as [`make`] names one.
pub(super) fn could_be_ours(folder: &Path) -> bool {
    let drawn = folder.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(PREFIX));
    drawn.is_some_and(|drawn| drawn.len() == DRAWN && drawn.bytes().all(|b| b.is_ascii_alphanumeric()))
}

fn is_ours(folder: &Path) -> bool {
    let parent = folder.parent().and_then(|parent| parent.canonicalize().ok());
    let temporary = std::env::temp_dir().canonicalize().ok();
    // Of the link itself: a link to somewhere else is no folder of ours.
    let found = std::fs::symlink_metadata(folder);
    could_be_ours(folder)
        && parent.is_some()
        && parent == temporary
        && found.is_ok_and(|found| found.is_dir() && found.uid() == nix::unistd::geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_folder_that_was_made_here_is_removed() {
        let ours = make().unwrap().keep();
        std::fs::write(ours.join("socket"), "").unwrap();
        assert_eq!(std::fs::metadata(&ours).unwrap().mode() & 0o777, 0o700, "whatever the umask");

        let elsewhere = tempfile::tempdir().unwrap();
        let strangers = [
            elsewhere.path().to_owned(),
            elsewhere.path().join("autotune-a1B2c3"),
            std::env::temp_dir().join(format!("autotune-{}", "long-name-of-somebody")),
        ];
        for stranger in &strangers {
            std::fs::create_dir_all(stranger).unwrap();
            assert!(!remove_scratch(stranger) && stranger.exists(), "{}", stranger.display());
        }
        std::fs::remove_dir(&strangers[2]).unwrap();

        let link = make().unwrap().keep();
        std::fs::remove_dir(&link).unwrap();
        std::os::unix::fs::symlink(&ours, &link).unwrap();
        assert!(!remove_scratch(&link) && ours.join("socket").exists(), "a link is not followed");
        std::fs::remove_file(&link).unwrap();
        assert!(!remove_scratch(&ours.join("..").join("..")) && !remove_scratch(Path::new("/")));

        // Somebody else's; only root can make one.
        if nix::unistd::geteuid().is_root() {
            let (theirs, me) = (make().unwrap().keep(), nix::unistd::geteuid());
            std::os::unix::fs::chown(&theirs, Some(65534), None).unwrap();
            assert!(!remove_scratch(&theirs) && theirs.exists());
            std::os::unix::fs::chown(&theirs, Some(me.as_raw()), None).unwrap();
            assert!(remove_scratch(&theirs));
        }

        assert!(remove_scratch(&ours) && !ours.exists());
        assert!(!remove_scratch(&ours), "it is gone");
    }
}
