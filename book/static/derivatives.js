// Derivatives of everything that a small Transformer computes, in reverse mode: `Tape` computes
// forward and backward. It is one function because a page opened from the disk can start a worker
// only from text.
window.makeTape = () => {
  // A matrix is a window on numbers, and on the derivatives of the loss by them: where it begins, and
  // how far apart its rows and columns are.
  const view = (data, grad, at, rows, columns, down, right) => ({
    data,
    grad,
    at,
    rows,
    columns,
    down,
    right,
  });
  const part = (x, at, rows, columns) => view(x.data, x.grad, at, rows, columns, x.down, x.right);
  const flip = (x) => view(x.data, x.grad, x.at, x.columns, x.rows, x.right, x.down);

  // C += A B, where c, a and b are the numbers that C, A and B are windows on; four columns at a
  // time, because a number of A is then read once for all. Past the last column nothing is kept.
  function multiply(c, C, a, A, b, B) {
    const [columns, inner, across, down] = [B.columns, A.columns, A.right, B.down];
    for (let i = 0; i < A.rows; i++) {
      for (let j = 0; j < columns; j += 4) {
        const second = Math.min(1, columns - 1 - j) * B.right;
        const third = Math.min(2, columns - 1 - j) * B.right;
        const fourth = Math.min(3, columns - 1 - j) * B.right;
        let [p, q, r, s] = [0, 0, 0, 0];
        let at = A.at + i * A.down;
        let from = B.at + j * B.right;
        for (let k = 0; k < inner; k++) {
          const factor = a[at];
          p += factor * b[from];
          q += factor * b[from + second];
          r += factor * b[from + third];
          s += factor * b[from + fourth];
          at += across;
          from += down;
        }
        const to = C.at + i * C.down + j * C.right;
        c[to] += p;
        if (j + 1 < columns) c[to + C.right] += q;
        if (j + 2 < columns) c[to + 2 * C.right] += r;
        if (j + 3 < columns) c[to + 3 * C.right] += s;
      }
    }
  }

  // Each place of a matrix: its number i, its row and its column.
  function places(rows, columns, visit) {
    for (let row = 0, i = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++, i++) visit(i, row, column);
    }
  }
  // For each row of x, the sum of what f makes of its places, from a number on.
  function sums(x, f, number = 0) {
    const all = new Float64Array(x.rows).fill(number);
    places(x.rows, x.columns, (i, row, column) => {
      all[row] += f(i, row, column);
    });
    return all;
  }

  // Each operation computes a matrix and notes how its derivatives reach what it was made of. To go
  // backward is to follow these notes from the last to the first.
  class Tape {
    constructor(Numbers) {
      this.notes = [];
      this.matrix = (rows, columns) => {
        const [data, grad] = [0, 1].map(() => new Numbers(rows * columns));
        return view(data, grad, 0, rows, columns, columns, 1);
      };
    }

    backward() {
      while (this.notes.length) this.notes.pop()();
    }

    // C += A B: the derivatives are two products as well.
    product(C, A, B) {
      multiply(C.data, C, A.data, A, B.data, B);
      this.notes.push(() => {
        multiply(A.grad, A, C.grad, C, B.data, flip(B));
        multiply(B.grad, B, A.data, flip(A), C.grad, C);
      });
    }

    // A matrix of numbers forward(i, row, column); backward(y) returns what becomes of a derivative g.
    each(rows, columns, forward, backward) {
      const y = this.matrix(rows, columns);
      places(rows, columns, (i, row, column) => {
        y.data[i] = forward(i, row, column);
      });
      this.notes.push(() => {
        const pass = backward(y);
        places(rows, columns, (i, row, column) => pass(y.grad[i], i, row, column));
      });
      return y;
    }

    // Rows of a table.
    look(table, ids) {
      const d = table.columns;
      const forward = (_, row, column) => table.data[ids[row] * d + column];
      const pass = (g, _, row, column) => {
        table.grad[ids[row] * d + column] += g;
      };
      return this.each(ids.length, d, forward, () => pass);
    }

    // factor · x + y
    add(x, y, factor = 1) {
      const forward = (i) => factor * x.data[i] + y.data[i];
      const pass = (g, i) => {
        x.grad[i] += factor * g;
        y.grad[i] += g;
      };
      return this.each(x.rows, x.columns, forward, () => pass);
    }

    relu(x) {
      const forward = (i) => Math.max(0, x.data[i]);
      const pass = (g, i) => {
        if (x.data[i] > 0) x.grad[i] += g;
      };
      return this.each(x.rows, x.columns, forward, () => pass);
    }

    // x Wᵀ + b for W (outs, ins), as PyTorch keeps it.
    linear(x, w, bias) {
      const y = bias ? this.look(bias, Array(x.rows).fill(0)) : this.matrix(x.rows, w.rows);
      this.product(y, x, flip(w));
      return y;
    }

    // Each row of factor · x as shares that sum to 1.
    softmax(x, factor) {
      const most = new Float64Array(x.rows).fill(-Infinity);
      places(x.rows, x.columns, (i, row) => {
        most[row] = Math.max(most[row], factor * x.data[i]);
      });
      const power = (i, row) => Math.exp(factor * x.data[i] - most[row]);
      const totals = sums(x, power);
      const forward = (i, row) => power(i, row) / totals[row];
      return this.each(x.rows, x.columns, forward, (y) => {
        const means = sums(x, (i) => y.data[i] * y.grad[i]);
        return (g, i, row) => {
          x.grad[i] += factor * y.data[i] * (g - means[row]);
        };
      });
    }

    // Each row with mean 0 and variance 1, times gain, plus bias.
    layerNorm(x, gain, bias) {
      const d = x.columns;
      const means = sums(x, (i) => x.data[i] / d);
      const variances = sums(x, (i, row) => (x.data[i] - means[row]) ** 2 / d, 1e-5);
      const scales = variances.map((variance) => 1 / Math.sqrt(variance));
      const unit = (i, row) => (x.data[i] - means[row]) * scales[row];
      const forward = (i, row, column) => unit(i, row) * gain.data[column] + bias.data[column];
      return this.each(x.rows, d, forward, (y) => {
        // To move or stretch a whole row changes nothing: these parts of the derivative are taken off.
        const inner = (i, column) => y.grad[i] * gain.data[column];
        const moves = sums(x, (i, _, column) => inner(i, column) / d);
        const stretches = sums(x, (i, row, column) => (inner(i, column) * unit(i, row)) / d);
        return (g, i, row, column) => {
          gain.grad[column] += g * unit(i, row);
          bias.grad[column] += g;
          const rest = inner(i, column) - moves[row] - stretches[row] * unit(i, row);
          x.grad[i] += rest * scales[row];
        };
      });
    }
  }

  return { Tape, part, flip };
};
