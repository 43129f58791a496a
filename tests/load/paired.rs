//! Each record beside what the server noted of its request.

use std::collections::BTreeMap;
use std::time::Duration;

use autotune::load::RequestRecord;

use crate::known::{Known, Served};
use crate::traffic::{Traffic, driven};

/// The records of such traffic against a server of its own, each with what the server did for it: none lost, none doubled.
pub fn served(model: &str, traffic: Traffic) -> Vec<(RequestRecord, Served)> {
    let server = Known::start(1).unwrap();
    let asked = traffic.due.len();
    let driven = driven(&server.url(), model, traffic);
    assert_eq!(driven.cut, None, "{model}: it ran to its end");
    assert_eq!(driven.records.len(), asked, "{model}: one record for every request");
    assert_eq!(server.requests(), asked as u64, "{model}: the server saw every request once");
    // The server notes a request after its last write, which the client may read before that.
    let mut notes = BTreeMap::new();
    for _ in 0..200 {
        notes.extend(server.served().into_iter().map(|s| (s.key.unwrap(), s)));
        if notes.len() == asked {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let pair = |record: RequestRecord| {
        let served =
            notes.remove(&u64::from(record.id)).unwrap_or_else(|| panic!("{model}: {record:?} was not served"));
        (record, served)
    };
    driven.records.into_iter().map(pair).collect()
}

/// The word of a record's error, and nothing for a whole answer.
pub fn error(record: &RequestRecord) -> &'static str {
    record.error.map_or("", |e| e.name())
}
