//! Rows of single runs, and the table of their medians.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use anyhow::Context;

/// One run.
pub struct Row {
    pub label: String,
    pub calls_per_second: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// For 10,000 calls.
    pub cpu_seconds: Option<f64>,
}

#[derive(clap::Args)]
pub struct Options {
    /// The rows, as `load` prints them.
    rows: PathBuf,
    /// The row that CPU time is compared with.
    #[arg(long, default_value = "nginx")]
    against: String,
    /// A line of text below the table; may be repeated.
    #[arg(long = "note")]
    notes: Vec<String>,
    /// Which bench the table is of.
    #[arg(long, default_value = "calls")]
    bench: String,
    /// Also put the table between the bench's markers of this file.
    #[arg(long)]
    write: Option<PathBuf>,
}

impl Row {
    pub fn line(&self) -> String {
        let cpu = self.cpu_seconds.map_or_else(|| "-".to_owned(), |cpu| format!("{cpu:.4}"));
        format!(
            "{}\t{:.1}\t{:.3}\t{:.3}\t{cpu}\n",
            self.label, self.calls_per_second, self.p50_ms, self.p99_ms
        )
    }

    fn parse(line: &str) -> anyhow::Result<Self> {
        let [label, rate, p50, p99, cpu] = line.split('\t').collect::<Vec<_>>()[..] else {
            anyhow::bail!("{line:?} is no row");
        };
        Ok(Self {
            label: label.to_owned(),
            calls_per_second: rate.parse()?,
            p50_ms: p50.parse()?,
            p99_ms: p99.parse()?,
            cpu_seconds: if cpu == "-" { None } else { Some(cpu.parse()?) },
        })
    }
}

pub fn run(options: &Options) -> anyhow::Result<()> {
    let rows = fs::read_to_string(&options.rows)?;
    let rows = rows.lines().map(Row::parse).collect::<anyhow::Result<Vec<_>>>()?;
    let table = markdown(&rows, options);
    crate::print(&table)?;
    let Some(file) = &options.write else { return Ok(()) };
    let page = fs::read_to_string(file)?;
    let mark = |place: &str| format!("<!-- scripts/bench {}: {place} -->\n", options.bench);
    let (begin, end) = (mark("begin"), mark("end"));
    let (head, rest) = page.split_once(&begin).context("the page has no begin marker")?;
    let (_, tail) = rest.split_once(&end).context("the page has no end marker")?;
    Ok(fs::write(file, format!("{head}{begin}{table}{end}{tail}"))?)
}

fn markdown(rows: &[Row], options: &Options) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for row in rows {
        if !labels.contains(&&*row.label) {
            labels.push(&row.label);
        }
    }
    let of = |label: &str, pick: &dyn Fn(&Row) -> Option<f64>| {
        median(rows.iter().filter(|row| row.label == label).filter_map(pick).collect())
    };
    let base = of(&options.against, &|row| row.cpu_seconds);
    let mut table = format!(
        "| | {0}/s | p50 ms | p99 ms | CPU s per 10,000 {0} | CPU, times {1} |\n|---|---:|---:|---:|---:|---:|\n",
        options.bench, options.against
    );
    let shown = |value: Option<f64>, digits: usize| {
        value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
    };
    for label in labels {
        let cpu = of(label, &|row| row.cpu_seconds);
        // Calling the backend directly measures the backend, which no proxy replaces.
        let ratio = if label == "direct" { None } else { cpu.zip(base).map(|(cpu, base)| cpu / base) };
        writeln!(
            table,
            "| {label} | {} | {} | {} | {} | {} |",
            shown(of(label, &|row| Some(row.calls_per_second)), 0),
            shown(of(label, &|row| Some(row.p50_ms)), 2),
            shown(of(label, &|row| Some(row.p99_ms)), 2),
            shown(cpu, 2),
            shown(ratio, 2),
        )
        .expect("writing to a string cannot fail");
    }
    for note in &options.notes {
        table.push_str(&format!("\n{note}\n"));
    }
    table
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}
