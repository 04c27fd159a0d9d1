package model

// layer takes the tensors of one block, all of whose names begin with p.
func (l *loader) layer(p string) Layer {
	c := l.c
	all := l.fam.biases == biasAll
	var y Layer
	y.AttnNorm = l.norm(p+"attn_norm", c.Hidden)
	y.Q, y.K, y.V = l.qkv(p)
	if l.fam.qkNorm {
		y.QNorm.Weight = l.vector(p+"attn_q_norm.weight", c.HeadDim)
		y.KNorm.Weight = l.vector(p+"attn_k_norm.weight", c.HeadDim)
	}
	y.O = l.linear(p+"attn_output", c.Hidden, c.Heads*c.ValueDim, all)
	if l.fam.postNorm {
		y.AttnPostNorm = l.norm(p+"post_attention_norm", c.Hidden)
		y.FFNPostNorm = l.norm(p+"post_ffw_norm", c.Hidden)
	}
	if !l.fam.parallel {
		y.FFNNorm = l.norm(p+"ffn_norm", c.Hidden)
	}
	if c.Experts > 0 {
		y.Router = l.matrix(p+"ffn_gate_inp.weight", c.Experts, c.Hidden)
		y.Experts = l.experts(p)
		return y
	}
	y.Gate, y.Up = l.gateUp(p)
	y.Down = l.linear(p+"ffn_down", c.Hidden, c.FFN, all)
	return y
}

// qkv takes the three projections, from one tensor when the file has them fused:
// Q's rows, then K's, then V's.
func (l *loader) qkv(p string) (q, k, v Linear) {
	c := l.c
	need := l.fam.biases != biasFree
	rows := [3]int{c.Heads * c.HeadDim, c.KVHeads * c.HeadDim, c.KVHeads * c.ValueDim}
	if l.has(p + "attn_qkv.weight") {
		all := l.linear(p+"attn_qkv", rows[0]+rows[1]+rows[2], c.Hidden, need)
		return all.rows(0, rows[0]), all.rows(rows[0], rows[1]), all.rows(rows[0]+rows[1], rows[2])
	}
	q = l.linear(p+"attn_q", rows[0], c.Hidden, need)
	k = l.linear(p+"attn_k", rows[1], c.Hidden, need)
	v = l.linear(p+"attn_v", rows[2], c.Hidden, need)
	return q, k, v
}

// gateUp takes the projections into the feed-forward network; Gate is empty in a
// network without one.
func (l *loader) gateUp(p string) (gate, up Linear) {
	c := l.c
	all := l.fam.biases == biasAll
	if l.fam.fusedGate {
		both := l.linear(p+"ffn_up", 2*c.FFN, c.Hidden, all)
		return both.rows(0, c.FFN), both.rows(c.FFN, c.FFN)
	}
	if c.Gated {
		gate = l.linear(p+"ffn_gate", c.FFN, c.Hidden, all)
	}
	return gate, l.linear(p+"ffn_up", c.FFN, c.Hidden, all)
}

// experts takes the stacked networks of a mixture apart.
func (l *loader) experts(p string) []Expert {
	c := l.c
	gate := l.stack(p+"ffn_gate_exps.weight", c.ExpertFFN, c.Hidden)
	up := l.stack(p+"ffn_up_exps.weight", c.ExpertFFN, c.Hidden)
	down := l.stack(p+"ffn_down_exps.weight", c.Hidden, c.ExpertFFN)
	if l.err != nil {
		return nil
	}
	experts := make([]Expert, c.Experts)
	for e := range experts {
		experts[e] = Expert{
			Gate: gate.rows(e*c.ExpertFFN, c.ExpertFFN),
			Up:   up.rows(e*c.ExpertFFN, c.ExpertFFN),
			Down: down.rows(e*c.Hidden, c.Hidden),
		}
	}
	return experts
}

// stack takes a tensor [experts, rows, cols] as one matrix of all rows.
func (l *loader) stack(name string, rows, cols int) Matrix {
	t := l.tensor(name, cols, rows, l.c.Experts)
	return Matrix{Name: name, Format: t.Format, Rows: rows * l.c.Experts, Cols: cols, Data: t.Data}
}

// rows is a view of n rows of a matrix, from row at on.
func (m Matrix) rows(at, n int) Matrix {
	size := 0
	if m.Rows > 0 {
		size = len(m.Data) / m.Rows
	}
	m.Data, m.Rows = m.Data[at*size:(at+n)*size], n
	return m
}

// rows is a view of n of the outputs of y = W·x + b, from output at on.
func (y Linear) rows(at, n int) Linear {
	y.W = y.W.rows(at, n)
	if y.Bias != nil {
		y.Bias = y.Bias[at : at+n]
	}
	return y
}
