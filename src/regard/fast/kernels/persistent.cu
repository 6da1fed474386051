// One recurrent layer, all its steps, in one kernel: forward, or backward (BACKWARD). See persistent.py.
//
// Every multiprocessor keeps a block of the recurrent matrix from the first step to the last, in registers and, where
// they do not suffice, in shared memory. Blocks form clusters of S: a cluster owns CLUSTER_UNITS units, each member a
// part of the sum over k. A step is
//
//     wait       for the outputs of the step before, bf16, in global memory; an output not yet written is UNWRITTEN
//     multiply   member r: all of its cluster's rows times part r of k, the warps each a part of both
//     exchange   the warps' partial sums are added, and sent to the member that owns the unit
//     gates      in fp32, one thread per unit and row; the new output is written for all to see
//
// The output is its own signal, so there is no barrier over the whole device. All blocks must be resident at once.
//
// Rows are independent: they are split into GROUPS, each on multiprocessors of its own, and within a group into PARTS
// (1, 2 or 4), one after the other, so that one part computes while another's outputs are exchanged.
//
// From persistent.py: B rows of each part, H units, HP = H in whole 16 bytes, G gates, CELL, S, UNITS, CLUSTER_UNITS,
// WM x WK warps of MT x KG blocks of 16 x 32 of the matrix, KR of these KG in registers, NT blocks of 8 rows, KPART
// of k, KSTRIDE.

typedef unsigned short bf16;
typedef unsigned int word;

#define LSTM 0
#define TANH 1
#define RELU 2
#define GRU 3

#define THREADS (32 * WM * WK)
#define ALL (GROUPS * PARTS * B)             // rows
#define CLUSTERS ((HP + CLUSTER_UNITS - 1) / CLUSTER_UNITS)  // of a group
#define GH ((G * H + 7) / 8 * 8)             // components of a step's gates, in whole 16 bytes
#define SUMS (CELL == GRU ? 4 : G)           // biases of a unit
#define K_ALL (BACKWARD ? GH : HP)           // the sum's length
#define ROWS (BACKWARD ? UNITS : G * UNITS)  // of the matrix, that one member finishes
#define ALL_ROWS (16 * WM * MT)              // that a member multiplies
#define NP (NT * 8 + 1)                      // odd: no bank conflicts
#define SLOTS (S > 1 ? S : WK)               // partial sums that the gates add
#define ITEMS ((B * UNITS + THREADS - 1) / THREADS)
#define CHUNKS ((B * (KPART / 8) + THREADS - 1) / THREADS)  // of 16 bytes, for each thread
#define CHAINS (MT * NT <= 2 ? 2 : 1)        // of products that wait for one another
#define PATIENCE (1u << 24)                  // polls before a missing block is an error instead of a hang

// ---- inline assembly

__device__ __forceinline__ void fetch(bf16* shared, const bf16* place) {  // place: another block may be writing it
    word there;
    asm("{ .reg .u64 x; cvta.to.shared.u64 x, %1; cvt.u32.u64 %0, x; }" : "=r"(there) : "l"(shared));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(there), "l"(place) : "memory");
}

__device__ __forceinline__ void fetched() { asm volatile("cp.async.wait_all;" ::: "memory"); }

__device__ __forceinline__ void show(bf16* place, bf16 value) {  // to all blocks
    asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" :: "l"(place), "h"(value) : "memory");
}

__device__ __forceinline__ bf16 ask(const bf16* place) {  // volatile: loads here, not where the value is used
    bf16 value;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(value) : "l"(place));
    return value;
}

__device__ __forceinline__ float ask(const float* place) {
    float value;
    asm volatile("ld.global.f32 %0, [%1];" : "=f"(value) : "l"(place));
    return value;
}

__device__ __forceinline__ bf16 narrow(float value) {
    bf16 rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
    return rounded;
}

__device__ __forceinline__ float over(float value) {  // 1 / value
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(value));
    return result;
}

__device__ __forceinline__ void multiply(float* sum, word a0, word a1, word a2, word a3, word b0, word b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

__device__ __forceinline__ word address(const float* place, int member) {  // of that member's copy of shared memory
    word here, there;
    asm("{ .reg .u64 x; cvta.to.shared.u64 x, %1; cvt.u32.u64 %0, x; }" : "=r"(here) : "l"(place));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(member));
    return there;
}

__device__ __forceinline__ void send(word address, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" :: "r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void meet() {  // barrier of a cluster: afterwards all see what was sent
    asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- the recurrence

__device__ __forceinline__ float wide(bf16 value) { return __uint_as_float((word)value << 16); }
__device__ __forceinline__ float sigmoid(float value) { return over(1.0f + __expf(-value)); }
__device__ __forceinline__ float tanh_of(float value) { return 1.0f - 2.0f * over(1.0f + __expf(2.0f * value)); }

__device__ __forceinline__ word unwritten(word pair) {  // is one of the two 0xFFFF, which rounding never produces?
    return (~pair - 0x00010001u) & pair & 0x80008000u;
}

__device__ __forceinline__ word unwritten(uint4 v) {
    return unwritten(v.x) | unwritten(v.y) | unwritten(v.z) | unwritten(v.w);
}

// Eight neighbours in k of U's transpose.
__device__ __forceinline__ uint4 column(const bf16* weight, int k, int unit) {
    word v[8];
    #pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = k + i < G * H ? weight[(long long)(k + i) * HP + unit] : 0;
    return make_uint4(v[0] | v[1] << 16, v[2] | v[3] << 16, v[4] | v[5] << 16, v[6] | v[7] << 16);
}

// The outputs of a step that this member multiplies, each thread some of them, into shared memory.
__device__ __forceinline__ void wait_for(bf16* acts, const bf16* source, int begin, int count) {
    #pragma unroll 8
    for (int i = 0; i < CHUNKS; ++i) {
        const int chunk = i * THREADS + threadIdx.x, row = chunk / (KPART / 8), k = chunk % (KPART / 8) * 8;
        if (row < B && k < count) fetch(acts + row * KSTRIDE + k, source + row * K_ALL + begin + k);
    }
    for (word missing = 1, looks = 0; missing;) {
        fetched();
        missing = 0;
        #pragma unroll 8
        for (int i = 0; i < CHUNKS; ++i) {
            const int chunk = i * THREADS + threadIdx.x, row = chunk / (KPART / 8), k = chunk % (KPART / 8) * 8;
            if (row < B && k < count && unwritten(*(const uint4*)(acts + row * KSTRIDE + k))) {
                fetch(acts + row * KSTRIDE + k, source + row * K_ALL + begin + k);
                missing = 1;
            }
        }
        if (++looks > PATIENCE) __trap();
    }
}

// weight     U [G H, HP] in bf16, beyond H zero
// gates      forward: the drives W x [T, rows, GH], overwritten by the opened gates; backward: these
// bias       [G H]; the GRU's [4 H]: reset, update, the candidate's, and b_u, inside the reset gate
// hiddens    [T + 1, rows, HP], the first is given, the others UNWRITTEN
// cells      LSTM: [T + 1, rows, H], the first is given; GRU: U_n h_{t-1} + b_u, [T, rows, H]
// d_gates    backward [T + 1, rows, GH], the last is zero, the others UNWRITTEN
// d_drives   of the GRU, where they differ from these, [T, rows, GH]
// d_hiddens  backward: from above, steps and rows d_step and d_row apart
// d_cell     [rows, H]: backward: in, the last cell's; out, the first's (GRU: d_hidden that bypasses the gates);
//            the GRU's forward: the first hidden in fp32
extern "C" __global__ void __cluster_dims__(S, 1, 1) __launch_bounds__(THREADS, 1)
recurrence(const bf16* weight, bf16* gates, const float* bias, bf16* hiddens, float* cells,
           bf16* d_gates, const bf16* d_hiddens, float* d_cell, float* d_bias, bf16* d_drives,
           int T, int d_step, int d_row)
{
    extern __shared__ __align__(128) unsigned char shared[];
    bf16* acts = (bf16*)shared;                                        // [NT * 8, KSTRIDE]
    uint4* kept = (uint4*)(acts + NT * 8 * KSTRIDE);                   // [warps, MT, KG - KR, 2, 32]
    float* partials = (float*)(kept + WM * WK * MT * (KG - KR) * 64);  // [WK, ALL_ROWS, NP]
    float* received = partials + WK * ALL_ROWS * NP;                   // [2, S, ROWS, NP] where S > 1

    const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32, wm = warp % WM, wk = warp / WM;
    const int rank = blockIdx.x % S, cluster = blockIdx.x / S % CLUSTERS, group = blockIdx.x / S / CLUSTERS;
    const int begin = rank * KPART, count = min(KPART, K_ALL - begin);  // this member's part of k; count may be <= 0
    const int first = cluster * CLUSTER_UNITS, mine = first + rank * UNITS;

    gates += group * PARTS * B * GH;
    hiddens += group * PARTS * B * HP;
    d_gates += group * PARTS * B * GH;
    d_drives += group * PARTS * B * GH;
    d_hiddens += group * PARTS * B * d_row;
    cells += group * PARTS * B * H;
    d_cell += group * PARTS * B * H;
    d_bias += group * PARTS * B * SUMS * H;

    for (int i = tid; i < NT * 8 * KSTRIDE / 8; i += THREADS) ((uint4*)acts)[i] = make_uint4(0, 0, 0, 0);

    // The matrix. Eight neighbours in k are one lane's operands of two products: k is summed over in any order.
    uint4 a[MT][KR][2];
    uint4* rest_of_a = kept + warp * MT * (KG - KR) * 64 + lane;
    #pragma unroll
    for (int mt = 0; mt < MT; ++mt) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int m = (wm * MT + mt) * 16 + half * 8 + lane / 4;
            const int owner = m / ROWS, rest = m % ROWS, gate = BACKWARD ? 0 : rest / UNITS;
            const int unit = first + owner * UNITS + (BACKWARD ? rest : rest % UNITS);
            const bool real = owner < S && unit < H;
            #pragma unroll
            for (int kg = 0; kg < KG; ++kg) {
                const int k = (wk * KG + kg) * 32 + lane % 4 * 8;
                uint4 v = make_uint4(0, 0, 0, 0);
                if (real && k < count) {
                    if (BACKWARD) v = column(weight, begin + k, unit);
                    else v = *(const uint4*)(weight + (long long)(gate * H + unit) * HP + begin + k);
                }
                if (kg < KR) a[mt][kg][half] = v;
                else rest_of_a[((mt * (KG - KR) + kg - KR) * 2 + half) * 32] = v;
            }
        }
    }

    float carried[PARTS][ITEMS];     // the cell, or its gradient
    float later[PARTS][ITEMS];       // backward: the cell of the step that was before this one, in backward order
    float sums[PARTS][ITEMS][SUMS];  // forward the bias; backward the bias's gradient
    #pragma unroll
    for (int part = 0; part < PARTS; ++part)
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int item = i * THREADS + tid, unit = mine + item % UNITS, row = part * B + item / UNITS;
            const bool real = item < B * UNITS && unit < H;
            carried[part][i] = later[part][i] = 0.0f;
            if (CELL == LSTM && real) {
                carried[part][i] = BACKWARD ? d_cell[row * H + unit] : cells[row * H + unit];
                if (BACKWARD) later[part][i] = cells[((long long)T * ALL + row) * H + unit];
            }
            if (CELL == GRU && !BACKWARD && real) carried[part][i] = d_cell[row * H + unit];
            #pragma unroll
            for (int g = 0; g < SUMS; ++g) sums[part][i][g] = !BACKWARD && real ? bias[g * H + unit] : 0.0f;
        }
    if (S > 1) meet();
    else __syncthreads();

    for (int s = 0; s < T; ++s)
    #pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        const int t = BACKWARD ? T - 1 - s : s;

        // Load early what the gates will need.
        bf16 given[ITEMS][G];
        float before[ITEMS];
        bf16 above[ITEMS], shown[ITEMS];
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int item = i * THREADS + tid, unit = mine + item % UNITS, row = part * B + item / UNITS;
            if (item >= B * UNITS || unit >= H) continue;
            const long long place = (long long)t * ALL + row;
            if (!BACKWARD || G > 1) {
                #pragma unroll
                for (int g = 0; g < G; ++g) given[i][g] = ask(gates + place * GH + g * H + unit);
            }
            if (BACKWARD) {
                above[i] = ask(d_hiddens + (long long)t * d_step + (long long)row * d_row + unit);
                if (G > 1) before[i] = ask(cells + place * H + unit);
                if (CELL != LSTM) shown[i] = ask(hiddens + (CELL == GRU ? place : place + ALL) * HP + unit);
            }
        }

        // Wait for the step before.
        const bf16* source = BACKWARD ? d_gates + ((long long)(t + 1) * ALL + part * B) * GH
                                      : hiddens + ((long long)t * ALL + part * B) * HP;
        wait_for(acts, source, begin, count);
        __syncthreads();

        // Multiply.
        float sum[CHAINS][MT][NT][4] = {};
        #pragma unroll
        for (int kg = 0; kg < KG; ++kg) {
            uint4 b[NT];
            #pragma unroll
            for (int nt = 0; nt < NT; ++nt)
                b[nt] = *(const uint4*)(acts + (nt * 8 + lane / 4) * KSTRIDE + (wk * KG + kg) * 32 + lane % 4 * 8);
            #pragma unroll
            for (int mt = 0; mt < MT; ++mt) {
                uint4 upper, lower;
                if (kg < KR) {
                    upper = a[mt][kg][0];
                    lower = a[mt][kg][1];
                } else {
                    upper = rest_of_a[(mt * (KG - KR) + kg - KR) * 64];
                    lower = rest_of_a[(mt * (KG - KR) + kg - KR) * 64 + 32];
                }
                #pragma unroll
                for (int nt = 0; nt < NT; ++nt) {
                    multiply(sum[0][mt][nt], upper.x, lower.x, upper.y, lower.y, b[nt].x, b[nt].y);
                    multiply(sum[CHAINS - 1][mt][nt], upper.z, lower.z, upper.w, lower.w, b[nt].z, b[nt].w);
                }
            }
        }

        // Exchange. Two buffers take turns: none is written again before its reader has come to the next meeting.
        float* own = partials + (wk * ALL_ROWS + wm * MT * 16 + lane / 4) * NP + lane % 4 * 2;
        #pragma unroll
        for (int mt = 0; mt < MT; ++mt)
            #pragma unroll
            for (int nt = 0; nt < NT; ++nt)
                #pragma unroll
                for (int i = 0; i < 4; ++i) own[(mt * 16 + i / 2 * 8) * NP + nt * 8 + i % 2] =
                    CHAINS > 1 ? sum[0][mt][nt][i] + sum[CHAINS - 1][mt][nt][i] : sum[0][mt][nt][i];
        __syncthreads();
        float* turn = received + ((s * PARTS + part) & 1) * (S * ROWS * NP);
        if (S > 1) {
            #pragma unroll 4
            for (int i = tid; i < S * ROWS * NT * 8; i += THREADS) {
                const int m = i / (NT * 8), n = i % (NT * 8);
                float total = 0.0f;
                #pragma unroll
                for (int part = 0; part < WK; ++part) total += partials[(part * ALL_ROWS + m) * NP + n];
                if (n < B) send(address(turn + (rank * ROWS + m % ROWS) * NP + n, m / ROWS), total);
            }
            meet();
        }

        // Gates.
        const float* added = S > 1 ? turn : partials;
        const int apart = S > 1 ? ROWS * NP : ALL_ROWS * NP;
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int item = i * THREADS + tid, row = item / UNITS, j = item % UNITS, unit = mine + j;
            if (row >= B || unit >= HP) continue;
            const long long place = (long long)t * ALL + part * B + row;
            float& carry = carried[part][i];
            float* sum_of = sums[part][i];
            if (unit >= H) {  // what fills up to whole 16 bytes
                if (!BACKWARD) show(hiddens + (place + ALL) * HP + unit, 0);
                else for (int k = G * H + unit - H; k < GH; k += HP - H) show(d_gates + place * GH + k, 0);
                continue;
            }
            float past[G];
            #pragma unroll
            for (int g = 0; g < (BACKWARD ? 1 : G); ++g) {
                past[g] = 0.0f;
                #pragma unroll
                for (int slot = 0; slot < SLOTS; ++slot) past[g] += added[slot * apart + (g * UNITS + j) * NP + row];
            }
#if CELL == LSTM && !BACKWARD
            const float store = sigmoid(wide(given[i][0]) + sum_of[0] + past[0]);
            const float forget = sigmoid(wide(given[i][1]) + sum_of[1] + past[1]);
            const float update = tanh_of(wide(given[i][2]) + sum_of[2] + past[2]);
            const float output = sigmoid(wide(given[i][3]) + sum_of[3] + past[3]);
            carry = forget * carry + store * update;
            show(hiddens + (place + ALL) * HP + unit, narrow(output * tanh_of(carry)));
            cells[(place + ALL) * H + unit] = carry;
            bf16* opened = gates + place * GH + unit;
            opened[0] = narrow(store);
            opened[H] = narrow(forget);
            opened[2 * H] = narrow(update);
            opened[3 * H] = narrow(output);
#elif CELL == LSTM
            const float store = wide(given[i][0]), forget = wide(given[i][1]);
            const float update = wide(given[i][2]), output = wide(given[i][3]);
            const float d_hidden = wide(above[i]) + past[0], squashed = tanh_of(later[part][i]);
            const float d = carry + d_hidden * output * (1.0f - squashed * squashed);
            const float d_store = d * update * store * (1.0f - store);
            const float d_forget = d * before[i] * forget * (1.0f - forget);
            const float d_update = d * store * (1.0f - update * update);
            const float d_output = d_hidden * squashed * output * (1.0f - output);
            bf16* into = d_gates + place * GH + unit;
            show(into, narrow(d_store));
            show(into + H, narrow(d_forget));
            show(into + 2 * H, narrow(d_update));
            show(into + 3 * H, narrow(d_output));
            carry = d * forget;
            later[part][i] = before[i];
            sum_of[0] += d_store;
            sum_of[1] += d_forget;
            sum_of[2] += d_update;
            sum_of[3] += d_output;
#elif CELL == GRU && !BACKWARD
            const float reset = sigmoid(wide(given[i][0]) + sum_of[0] + past[0]);
            const float update = sigmoid(wide(given[i][1]) + sum_of[1] + past[1]);
            const float asked = past[2] + sum_of[3];
            const float candidate = tanh_of(wide(given[i][2]) + sum_of[2] + reset * asked);
            carry = update * carry + (1.0f - update) * candidate;
            show(hiddens + (place + ALL) * HP + unit, narrow(carry));
            cells[place * H + unit] = asked;
            bf16* opened = gates + place * GH + unit;
            opened[0] = narrow(reset);
            opened[H] = narrow(update);
            opened[2 * H] = narrow(candidate);
#elif CELL == GRU
            const float reset = wide(given[i][0]), update = wide(given[i][1]), candidate = wide(given[i][2]);
            const float d_hidden = wide(above[i]) + past[0] + carry;
            const float d_candidate = d_hidden * (1.0f - update) * (1.0f - candidate * candidate);
            const float d_update = d_hidden * (wide(shown[i]) - candidate) * update * (1.0f - update);
            const float d_reset = d_candidate * before[i] * reset * (1.0f - reset), d_asked = d_candidate * reset;
            bf16* into = d_gates + place * GH + unit;
            show(into, narrow(d_reset));
            show(into + H, narrow(d_update));
            show(into + 2 * H, narrow(d_asked));
            bf16* drive = d_drives + place * GH + unit;
            drive[0] = narrow(d_reset);
            drive[H] = narrow(d_update);
            drive[2 * H] = narrow(d_candidate);
            carry = d_hidden * update;
            sum_of[0] += d_reset;
            sum_of[1] += d_update;
            sum_of[2] += d_candidate;
            sum_of[3] += d_asked;
#elif !BACKWARD
            const float drive = wide(given[i][0]) + sum_of[0] + past[0];
            show(hiddens + (place + ALL) * HP + unit, narrow(CELL == TANH ? tanh_of(drive) : fmaxf(drive, 0.0f)));
#else
            const float hidden = wide(shown[i]);
            const float slope = CELL == TANH ? 1.0f - hidden * hidden : hidden > 0.0f ? 1.0f : 0.0f;
            const float d = (wide(above[i]) + past[0]) * slope;
            show(d_gates + place * GH + unit, narrow(d));
            sum_of[0] += d;
#endif
        }
    }

#if BACKWARD
    #pragma unroll
    for (int part = 0; part < PARTS; ++part)
        #pragma unroll
        for (int i = 0; i < ITEMS; ++i) {
            const int item = i * THREADS + tid, unit = mine + item % UNITS, row = part * B + item / UNITS;
            if (item >= B * UNITS || unit >= H) continue;
            if (G > 1) d_cell[row * H + unit] = carried[part][i];
            #pragma unroll
            for (int g = 0; g < SUMS; ++g) d_bias[(row * SUMS + g) * H + unit] = sums[part][i][g];
        }
#endif
}
