//! The Markdown that a run prints and writes.

use std::fmt::Write;

use crate::arms::{Arm, REFERENCE};
use crate::numbers::{Summary, calibration, certified_rates, gains_held, limits_held, minutes_by_purpose, share};
use crate::sessions::{Gained, Row};
use crate::surfaces::{Kind, Surface};
use crate::truths::{Truths, known_arm};

pub fn markdown(rows: &[Row], surfaces: &[&Surface], arms: &[Arm], truths: &Truths) -> String {
    let mut text = String::from("# Searches on simulated engines\n\nNothing here was measured.\n");
    writeln!(text, "\n## All surfaces together\n").unwrap();
    head(&mut text, "arm");
    for arm in arms {
        let of_arm = of(rows, arm, None);
        if of_arm.is_empty() {
            continue;
        }
        let worst = surfaces.iter().map(|s| (s.name, Summary::of(&of(rows, arm, Some(s.name))).as_good));
        let worst = worst.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(("", f64::NAN));
        let over = surfaces.iter().map(|s| (s.name, Summary::of(&of(rows, arm, Some(s.name))).over));
        let over = over.filter(|o| o.1 > 0.0).max_by(|a, b| a.1.total_cmp(&b.1));
        line(&mut text, &titled(arm), &Summary::of(&of_arm));
        let over = over.map_or(String::new(), |o| format!("; most rates over their limit: {} ({})", o.0, percent(o.1)));
        writeln!(text, "| | worst: {} ({}){over} | | | | | | | | | |", worst.0, percent(worst.1)).unwrap();
    }
    kinds(&mut text, rows, arms);
    writeln!(text, "\n## Stated confidence and observed frequency\n").unwrap();
    writeln!(text, "| arm | stated | rates | mean stated | not above the truth | not above it by 1 % |").unwrap();
    writeln!(text, "|---|---|---|---|---|---|").unwrap();
    for arm in arms {
        for bin in calibration(&certified_rates(&of(rows, arm, None))) {
            let (from, to, rates) = (bin.from, bin.to, bin.rates);
            let [stated, holds, nearly] = [bin.mean_stated, bin.not_above, bin.nearly_not_above].map(percent);
            writeln!(text, "| {} | {from} to {to} | {rates} | {stated} | {holds} | {nearly} |", arm.name).unwrap();
        }
    }
    gains(&mut text, rows, arms);
    minutes(&mut text, rows, surfaces, arms);
    for surface in surfaces {
        let (best, rate) = truths.best(surface.name).unwrap_or(("nothing is feasible", 0.0));
        let (points, near) = truths.count(surface.name);
        let kind = surface.kind.name();
        writeln!(text, "\n## {}\n", surface.name).unwrap();
        writeln!(text, "{kind}; best of {points} points: {best}, {rate:.2} req/s; {near} points within 3 %\n").unwrap();
        head(&mut text, "arm");
        for arm in arms {
            let of_arm = of(rows, arm, Some(surface.name));
            if !of_arm.is_empty() {
                line(&mut text, &titled(arm), &Summary::of(&of_arm));
            }
        }
    }
    text
}

/// Each kind of surface by itself.
fn kinds(text: &mut String, rows: &[Row], arms: &[Arm]) {
    writeln!(text, "\n## By kind\n").unwrap();
    let head = "| kind | arm | runs | within 3 % of the best | over by 3 % | certified / limit, median | limits in their 90 % | gains in their 90 % |";
    writeln!(text, "{head}\n|---|---|---|---|---|---|---|---|").unwrap();
    for (kind, arm) in Kind::ALL.iter().flat_map(|kind| arms.iter().map(move |arm| (*kind, arm))) {
        let rows: Vec<&Row> = of(rows, arm, None).into_iter().filter(|r| r.kind == kind).collect();
        if rows.is_empty() {
            continue;
        }
        let (summary, rates) = (Summary::of(&rows), certified_rates(&rows));
        let limits = rates.iter().filter(|s| s.limit.is_some()).count();
        let gains = rows.iter().filter(|r| r.gain.is_some()).count();
        writeln!(
            text,
            "| {} | {} | {} | {} | {} of {} | {:.3} | {} of {limits} | {} of {gains} |",
            kind.name(),
            arm.name,
            summary.runs,
            percent(summary.as_good),
            percent(summary.over),
            summary.certified,
            summary.median_certified,
            percent(limits_held(&rates)),
            percent(gains_held(&rows)),
        )
        .unwrap();
    }
}

/// Whether stated gains over the defaults are true.
fn gains(text: &mut String, rows: &[Row], arms: &[Arm]) {
    writeln!(text, "\n## Stated gains over the defaults, with their 90 % intervals\n").unwrap();
    writeln!(
        text,
        "| arm | gains | in the interval | below it | above it | said to be a gain for sure | of these no gain |"
    )
    .unwrap();
    writeln!(text, "|---|---|---|---|---|---|---|").unwrap();
    for arm in arms {
        let gains: Vec<Gained> = of(rows, arm, None).into_iter().filter_map(|r| r.gain).collect();
        let sure: Vec<&Gained> = gains.iter().filter(|g| g.stated.from > 0.0).collect();
        let below = share(&gains, |g| g.truth < g.stated.from);
        let above = share(&gains, |g| g.truth > g.stated.to);
        let none = share(&sure, |g| g.truth <= 0.0);
        let shares = [1.0 - below - above, below, above].map(percent).join(" | ");
        writeln!(text, "| {} | {} | {shares} | {} | {} |", arm.name, gains.len(), sure.len(), percent(none)).unwrap();
    }
}

/// What the minutes of the reference went into, surface by surface.
fn minutes(text: &mut String, rows: &[Row], surfaces: &[&Surface], arms: &[Arm]) {
    let Some(reference) = arms.iter().find(|arm| arm.name == REFERENCE) else { return };
    writeln!(text, "\n## Where the GPU minutes of {REFERENCE} go, means\n").unwrap();
    let head = ["surface", "launches", "probes", "bursts", "launches that prove", "windows", "bursts"];
    writeln!(text, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len())).unwrap();
    for surface in surfaces {
        let cells = minutes_by_purpose(&of(rows, reference, Some(surface.name))).map(|minutes| format!("{minutes:.1}"));
        writeln!(text, "| {} | {} |", surface.name, cells.join(" | ")).unwrap();
    }
}

pub fn of<'a>(rows: &'a [Row], arm: &Arm, surface: Option<&str>) -> Vec<&'a Row> {
    rows.iter().filter(|r| r.arm == arm.name && surface.is_none_or(|name| r.surface == name)).collect()
}

fn titled(arm: &Arm) -> String {
    format!("{}{}", arm.name, if arm.twin { " with the twin" } else { "" })
}

fn head(text: &mut String, first: &str) {
    writeln!(
        text,
        "| {first} | runs | within 3 % of the best | quality, median [p5] | certified / limit, median | over by 3 % | proven | launches | GPU min, median [p10..p90] | min | ms |"
    )
    .unwrap();
    writeln!(text, "|---|---|---|---|---|---|---|---|---|---|---|").unwrap();
}

fn line(text: &mut String, first: &str, s: &Summary) {
    writeln!(
        text,
        "| {first} | {} | {} | {:.3} [{:.3}] | {:.3} | {} of {} | {} | {:.0} | {:.1} [{:.1}..{:.1}] | {:.1} | {:.0} |",
        s.runs,
        percent(s.as_good),
        s.median_quality,
        s.low_quality,
        s.median_certified,
        percent(s.over),
        s.certified,
        percent(s.proven),
        s.launches,
        s.minutes[0],
        s.minutes[1],
        s.minutes[2],
        s.elapsed,
        s.millis,
    )
    .unwrap();
}

fn percent(share: f64) -> String {
    if share.is_nan() { "-".to_owned() } else { format!("{:.1} %", share * 100.0) }
}

pub fn landscape(surfaces: &[&Surface], truths: &Truths) -> String {
    let mut text =
        String::from("| surface | kind | points | best point | req/s | defaults | gain | within 3 % | fine limits |\n");
    writeln!(text, "|---|---|---|---|---|---|---|---|---|").unwrap();
    for surface in surfaces {
        let name = surface.name;
        let (points, near) = truths.count(name);
        let (best, rate) = truths.best(name).unwrap_or(("none", 0.0));
        let defaults = truths.rate(name, &surface.plan(&known_arm(surface)).space.baseline());
        let kind = surface.kind.name();
        let (gain, fine) = ((rate / defaults - 1.0) * 100.0, truths.fine(name));
        writeln!(
            text,
            "| {name} | {kind} | {points} | {best} | {rate:.2} | {defaults:.2} | {gain:+.0} % | {near} | {fine} |"
        )
        .unwrap();
    }
    text
}
