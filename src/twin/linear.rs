//! Small symmetric systems: Cholesky's decomposition of a matrix of a dozen rows.

/// A symmetric matrix in rows, positive definite where it is asked to be solved.
pub(super) type Matrix = Vec<Vec<f64>>;

/// The lower triangle L with L Lᵀ = A, or none where A is not positive definite.
fn cholesky(a: &Matrix) -> Option<Matrix> {
    let n = a.len();
    let mut l = vec![vec![0.0; n]; n];
    for i in 0..n {
        for j in 0..=i {
            let rest = a[i][j] - (0..j).map(|k| l[i][k] * l[j][k]).sum::<f64>();
            if i == j {
                if rest.is_nan() || rest <= 0.0 {
                    return None;
                }
                l[i][i] = rest.sqrt();
            } else {
                l[i][j] = rest / l[j][j];
            }
        }
    }
    Some(l)
}

/// The x with A x = b.
pub(super) fn solve(a: &Matrix, b: &[f64]) -> Option<Vec<f64>> {
    let l = cholesky(a)?;
    let n = b.len();
    let mut x = b.to_vec();
    for i in 0..n {
        x[i] = (x[i] - (0..i).map(|k| l[i][k] * x[k]).sum::<f64>()) / l[i][i];
    }
    for i in (0..n).rev() {
        x[i] = (x[i] - (i + 1..n).map(|k| l[k][i] * x[k]).sum::<f64>()) / l[i][i];
    }
    Some(x)
}

pub(super) fn inverse(a: &Matrix) -> Option<Matrix> {
    let unit = |i: usize| (0..a.len()).map(|j| f64::from(u8::from(i == j))).collect::<Vec<f64>>();
    (0..a.len()).map(|i| solve(a, &unit(i))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_undoes_its_matrix() {
        let a = vec![vec![4.0, 1.0, 0.5], vec![1.0, 3.0, 0.2], vec![0.5, 0.2, 2.0]];
        let inverse = inverse(&a).unwrap();
        for (i, row) in a.iter().enumerate() {
            for j in 0..3 {
                let entry: f64 = row.iter().zip(&inverse).map(|(x, other)| x * other[j]).sum();
                assert!((entry - f64::from(u8::from(i == j))).abs() < 1e-12);
            }
        }
        assert_eq!(solve(&vec![vec![1.0, 2.0], vec![2.0, 1.0]], &[1.0, 1.0]), None, "not positive definite");
    }
}
