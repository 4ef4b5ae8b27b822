#!/usr/bin/env python3
"""How often Adafactor's clip factor could be proved to be 1 without its own pass.

Trains the demo's small GPT with Adafactor and looks, for every matrix at every step, at
RMS(u) and at the one-pass estimate of it with its bound (docs/rationale-passes.md): from
row and column sums of the update by the factors of the step before,

    T = (g / sqrt(R_old C_old))^2,  a = T 1,  d = T' 1,  B = 1' T 1,
    rho = R_old / R,  kappa = C_old / C,  estimate = (a' rho) (d' kappa) / B,
    |estimate - rho' T kappa| <= sqrt(sum a (rho - a' rho / B)^2)
                                 * sqrt(sum d (kappa - d' kappa / B)^2)   (Cauchy-Schwarz)

    tools/bench/clip_certificate.py [--steps N] [--rows N]

SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""

import argparse
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "demo"))
import corpus  # noqa: E402
import model  # noqa: E402

DECAY, EPS, LR = -0.8, 1e-30, 1e-2
PRECISE = 2.0**-25


def look(g, old_row, old_col, row, col):
    """RMS(u), and the estimate of its square and its bound as shares of it; f64."""
    t = g.square() / (old_row * old_col)
    rho, kappa = old_row / row, old_col / col
    a, d, total = t.sum(1, keepdim=True), t.sum(0, keepdim=True), t.sum()
    by_row, by_col = (a * rho).sum(), (d * kappa).sum()
    exact = (t * rho * kappa).sum()
    estimate = by_row * by_col / total
    off = (a * (rho - by_row / total).square()).sum().sqrt()
    off = off * (d * (kappa - by_col / total).square()).sum().sqrt()
    if (estimate - exact).abs() > off * (1 + 1e-9) + 1e-12 * exact:
        raise AssertionError(f"the bound {off} does not hold: {estimate} for {exact}")
    scale = row.mean() / g.numel()
    return (exact * scale).sqrt().item(), (estimate * scale).item(), (off * scale).item()


class Adafactor:
    """transformers' Adafactor with a given step size, in f64; says what it saw."""

    def __init__(self, params):
        self.params, self.states, self.count = list(params), {}, 0

    @torch.no_grad()
    def step(self):
        """For each matrix RMS(u), its square's estimate and the estimate's bound."""
        self.count += 1
        w, seen = self.count**DECAY, []
        for param in self.params:
            g = param.grad.double()
            square = g.square() + EPS
            if g.dim() < 2:
                v = self.states.setdefault(param, torch.zeros_like(g)).lerp_(square, w)
                u = g / v.sqrt()
                rms = u.square().mean().sqrt().item()
            else:
                g = g.flatten(0, -2)
                square = g.square() + EPS
                means = square.mean(1, keepdim=True), square.mean(0, keepdim=True)
                old = self.states.get(param)
                new = means
                if old is not None:
                    new = [o.lerp(m, w) for o, m in zip(old, means, strict=True)]
                self.states[param] = new
                u = g * (new[0].mean() / (new[0] * new[1])).sqrt()
                rms = u.square().mean().sqrt().item()
                if old is not None:
                    seen.append(look(g, *old, *new))
            size = max(1e-3, param.double().square().mean().sqrt().item())
            param.sub_((LR * size / max(1.0, rms) * u).view_as(param).to(param.dtype))
        return seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=8)
    chosen = parser.parse_args()
    data, held_out = corpus.load()
    del held_out
    gpt = model.make(7)
    optimizer = Adafactor(gpt.parameters())
    generator = torch.Generator().manual_seed(7)
    window, part = [], max(1, chosen.steps // 5)
    print("steps        RMS(u) <= 1   proved   bound <= 2^-25   median bound   loss")
    for step in range(chosen.steps):
        loss = gpt(*corpus.batch(data, chosen.rows, model.LENGTH, generator))
        gpt.zero_grad()
        loss.backward()
        window += optimizer.step()
        if (step + 1) % part or not window:
            continue
        rms, estimate, bound = torch.tensor(window, dtype=torch.float64).T
        share = [(rms <= 1), (estimate + bound <= 1), (bound <= PRECISE * estimate)]
        figures = [f"{100 * one.double().mean():.1f} %" for one in share]
        print(
            f"{step + 2 - part:4d}-{step + 1:<4d}{figures[0]:>14}{figures[1]:>9}"
            f"{figures[2]:>17}{(bound / estimate).median():>15.1e}{loss.item():7.3f}"
        )
        window = []


if __name__ == "__main__":
    main()
