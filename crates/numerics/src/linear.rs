//! Small symmetric systems: Cholesky's decomposition of a matrix of some dozen rows.

/// A symmetric matrix in rows.
pub type Matrix = Vec<Vec<f64>>;

/// The lower triangle L with L Lᵀ = A, where A is positive definite.
#[derive(Clone, Debug)]
pub struct Cholesky(Matrix);

impl Cholesky {
    /// `None` if A is not positive definite.
    pub fn of(a: &Matrix) -> Option<Self> {
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
        Some(Self(l))
    }

    /// The x with A x = b.
    pub fn solve(&self, b: &[f64]) -> Vec<f64> {
        let (l, n) = (&self.0, b.len());
        let mut x = b.to_vec();
        for i in 0..n {
            x[i] = (x[i] - (0..i).map(|k| l[i][k] * x[k]).sum::<f64>()) / l[i][i];
        }
        for i in (0..n).rev() {
            x[i] = (x[i] - (i + 1..n).map(|k| l[k][i] * x[k]).sum::<f64>()) / l[i][i];
        }
        x
    }

    pub fn inverse(&self) -> Matrix {
        let n = self.0.len();
        let unit = |i: usize| (0..n).map(|j| f64::from(u8::from(i == j))).collect::<Vec<f64>>();
        (0..n).map(|i| self.solve(&unit(i))).collect()
    }

    pub fn half_log_determinant(&self) -> f64 {
        self.0.iter().enumerate().map(|(i, row)| row[i].ln()).sum()
    }
}

pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_undoes_its_matrix() {
        let a = vec![vec![4.0, 1.0, 0.5], vec![1.0, 3.0, 0.2], vec![0.5, 0.2, 2.0]];
        let inverse = Cholesky::of(&a).unwrap().inverse();
        for (i, row) in a.iter().enumerate() {
            for j in 0..3 {
                let entry: f64 = row.iter().zip(&inverse).map(|(x, other)| x * other[j]).sum();
                assert!((entry - f64::from(u8::from(i == j))).abs() < 1e-12);
            }
        }
        assert!(Cholesky::of(&vec![vec![1.0, 2.0], vec![2.0, 1.0]]).is_none(), "not positive definite");
    }
}
