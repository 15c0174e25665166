//! Measured pairs: the throughput of a gang when it is consolidated, and its throughput when it is spread. The ratio of
//! the two is the locality factor.

use super::config::{Measured, NetworkConfig, bad};
use gangline_model::ModelError;
use std::collections::BTreeMap;

/// Key of a series: GPU type, label and batch size; a batch size of 0 means any.
type Series = (u32, u32, u32);

/// The table entry for one gang size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Found {
    /// Share of the rate that the gang keeps when it is spread.
    Ratio(f64),
    /// The gang was measured only when consolidated, or not at all.
    Missing,
}

/// Ratios for each series and gang size.
#[derive(Clone, Debug)]
pub(super) struct RatioTable {
    series: BTreeMap<Series, Vec<(u32, Option<f64>)>>,
    /// Additional factor for gangs across several racks.
    pub(super) network_extra: f64,
}

impl RatioTable {
    /// Computes the ratios of the measured pairs; `labels` contains the labels of the jobs.
    pub(super) fn new(config: &NetworkConfig, labels: &[String]) -> Result<Self, ModelError> {
        let network_extra = config.network_extra.unwrap_or(1.0);
        if !(network_extra > 0.0 && network_extra <= 1.0) {
            return Err(bad("network_extra", &network_extra, "a factor in (0, 1]"));
        }
        let mut series: BTreeMap<Series, Vec<(u32, Option<f64>)>> = BTreeMap::new();
        for row in &config.measured {
            let label = labels.iter().position(|label| *label == row.model);
            let Some(label) = label.filter(|_| row.gpus > 1) else {
                continue;
            };
            let key = (row.gpu_type, label as u32, row.batch_size);
            series.entry(key).or_default().push((row.gpus, ratio(row)));
        }
        for points in series.values_mut() {
            points.sort_by_key(|point| point.0);
            if config.is_monotone {
                let mut least = 1.0_f64;
                for value in points.iter_mut().filter_map(|point| point.1.as_mut()) {
                    least = least.min(*value);
                    *value = least;
                }
            }
        }
        Ok(Self {
            series,
            network_extra,
        })
    }

    /// Returns the ratio for a gang. If the table lacks the size of the gang, the nearest smaller size in the table
    /// applies. A series with the job's batch size takes precedence over a series for any batch size.
    pub(super) fn find(&self, gpu_type: u32, label: u32, batch_size: u32, gpus: u32) -> Found {
        let points = self
            .series
            .get(&(gpu_type, label, batch_size))
            .or_else(|| self.series.get(&(gpu_type, label, 0)));
        let point = points.and_then(|points| points.iter().rev().find(|point| point.0 <= gpus));
        match point.and_then(|point| point.1) {
            Some(ratio) => Found::Ratio(ratio),
            None => Found::Missing,
        }
    }
}

/// Returns the ratio of a row. A gang whose consolidated rate is 0 loses nothing to distance, because its base rate is
/// 0.
fn ratio(row: &Measured) -> Option<f64> {
    if row.consolidated <= 0.0 {
        return Some(1.0);
    }
    let spread = row.spread.filter(|&spread| spread > 0.0)?;
    Some((spread / row.consolidated).min(1.0))
}
