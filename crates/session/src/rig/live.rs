//! Files that change a running engine: its limits (`engine/dialects/vllm/live_scheduler.py` has the format), or the command of a graph's frontend.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::private::{create_file, create_folder};
use autotune_plan::engine::live::{LIVE_FILE, LIVE_MODULE, LIVE_MODULE_NAME, LIVE_SCHEDULER, LiveLimits};
use autotune_plan::engine::live_file::{ANSWER, LiveWords, WORDS};

/// The file, and the folder with the module that reads it.
pub(super) struct LiveFile {
    words: LiveWords,
    folder: PathBuf,
    asked: LiveLimits,
    change: i64,
}

impl LiveFile {
    /// In a folder of its own, before the engine starts.
    pub(super) fn create(folder: &Path) -> io::Result<Self> {
        create_folder(folder)?;
        let folder = folder.canonicalize()?;
        create_file(&folder.join(LIVE_MODULE_NAME).with_extension("py"))?.write_all(LIVE_MODULE.as_bytes())?;
        let path = folder.join("limits");
        let file = File::options().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.set_len(8 * WORDS)?;
        Ok(Self { words: LiveWords(file), folder, asked: LiveLimits::default(), change: 0 })
    }

    /// The arguments that the engine needs.
    pub(super) fn arguments(&self) -> [String; 2] {
        ["--scheduler-cls".to_owned(), LIVE_SCHEDULER.to_owned()]
    }

    /// The variables that the engine needs; `python_path` is the search path that Python has already.
    pub(super) fn environment(&self, python_path: Option<&str>) -> [(String, String); 2] {
        let folder = self.folder.display();
        let path =
            python_path.filter(|path| !path.is_empty()).map_or(folder.to_string(), |path| format!("{folder}:{path}"));
        [("PYTHONPATH".to_owned(), path), (LIVE_FILE.to_owned(), self.folder.join("limits").display().to_string())]
    }

    /// Asks for other limits. The engine reads them at its next step, which it takes when a request comes.
    pub(super) fn ask(&mut self, limits: LiveLimits) -> io::Result<()> {
        (self.asked, self.change) = (limits, self.change + 1);
        self.words.write(1, limits.sequences.unwrap_or(0))?;
        self.words.write(2, limits.tokens.unwrap_or(0))?;
        self.words.write(0, self.change)
    }

    /// Whether the engine has taken what was asked last, and has kept it since.
    pub(super) fn holds(&self) -> io::Result<bool> {
        let (ran, scheduled) = (self.words.read(ANSWER + 4)?, self.words.read(ANSWER + 5)?);
        let within = |seen: i64, limit: Option<i64>| limit.is_none_or(|limit| seen <= limit);
        let kept = within(ran, self.asked.sequences) && within(scheduled, self.asked.tokens);
        Ok(self.words.read(ANSWER)? == self.change && self.words.read(ANSWER + 3)? > 0 && kept)
    }
}

/// How a running engine is given other values.
pub(super) enum Change {
    Limits(LiveFile),
    Frontend(FrontendFile),
}

impl Change {
    /// Whether what was asked last is in force.
    pub(super) fn holds(&self) -> bool {
        match self {
            Self::Limits(file) => file.holds().unwrap_or(false),
            Self::Frontend(file) => file.holds(),
        }
    }
}

/// The file with the command of a graph's frontend; `supervise/graph.rs` reads it.
pub(super) struct FrontendFile {
    path: PathBuf,
    change: u32,
}

impl FrontendFile {
    pub(super) fn of(path: PathBuf) -> Self {
        Self { path, change: 0 }
    }

    /// Asks for a frontend with another command. The file appears whole.
    pub(super) fn ask(&mut self, words: &[String]) -> io::Result<()> {
        self.change += 1;
        let new = self.path.with_extension("new");
        drop(std::fs::remove_file(&new));
        create_file(&new)?.write_all(format!("{}\n{}\n\n", self.change, words.join("\n")).as_bytes())?;
        std::fs::rename(new, &self.path)
    }

    /// Whether the frontend that was asked for last was started.
    pub(super) fn holds(&self) -> bool {
        let done = std::fs::read_to_string(self.path.with_extension("done"));
        self.change == 0 || done.is_ok_and(|done| done == self.change.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_user_reads_the_limits_or_changes_the_module() {
        use std::os::unix::fs::PermissionsExt;
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("live");
        drop(LiveFile::create(&folder).unwrap());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        let files: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() == 2 && files.iter().all(|file| mode(file) == 0o600), "{files:?}");
    }

    #[test]
    fn limits_hold_once_the_engine_says_so_and_as_long_as_it_keeps_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut live = LiveFile::create(&folder.path().join("live")).unwrap();
        let [(_, path), (_, limits)] = live.environment(Some("/opt/modules"));
        assert!(path.ends_with("/live:/opt/modules") && Path::new(&limits).is_absolute(), "{path} {limits}");
        live.ask(LiveLimits { sequences: Some(8), tokens: None }).unwrap();
        assert!(!live.holds().unwrap(), "nobody has answered");
        let tell = |change, steps, ran, scheduled| {
            for (word, value) in [(ANSWER, change), (ANSWER + 3, steps), (ANSWER + 4, ran), (ANSWER + 5, scheduled)] {
                live.words.write(word, value).unwrap();
            }
            live.holds().unwrap()
        };
        assert!(tell(1, 5, 8, 100_000));
        assert!(!tell(-1, 5, 8, 100), "refused");
        assert!(!tell(0, 5, 8, 100), "an earlier change");
        assert!(!tell(1, 0, 0, 0), "no step was made");
        assert!(!tell(1, 5, 9, 100), "more ran than may");
    }
}
