// A GPU made of the host's threads, one for each of a kernel's: enough to run kernels/persistent.cu at tiny sizes.

#include <barrier>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __cluster_dims__(x, y, z)
#define __launch_bounds__(threads, blocks)
#define __expf expf

struct uint4 { unsigned x, y, z, w; };
struct Index { int x; };
struct Warp { std::barrier<> together{32}; unsigned a[32][4], b[32][2]; };
struct Block {
    std::barrier<> together;
    std::vector<std::unique_ptr<Warp>> warps;
    std::vector<uint4> memory;  // aligned to 16 bytes, as it has to be
    Block(int threads, int bytes) : together(threads), memory(bytes / 16 + 1) {
        for (int i = 0; i < threads / 32; ++i) warps.emplace_back(new Warp);
        memset(memory.data(), 0xFF, bytes);  // no one may count on zeros
    }
    unsigned char* shared() { return (unsigned char*)memory.data(); }
};

static thread_local Index threadIdx, blockIdx;
static std::vector<std::unique_ptr<Block>> blocks;
static std::vector<std::unique_ptr<std::barrier<>>> clusters;

static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static int min(int a, int b) { return a < b ? a : b; }
static float __uint_as_float(unsigned bits) { float value; memcpy(&value, &bits, 4); return value; }
static void __syncthreads() { blocks[blockIdx.x]->together.arrive_and_wait(); }
static void __trap() { abort(); }

typedef unsigned short bf16;
typedef unsigned int word;

static void fetch(bf16* shared, const bf16* place) {
    if ((size_t)place % 16 || (size_t)shared % 16) abort();
    for (int i = 0; i < 8; ++i) {
        shared[i] = __atomic_load_n(place + i, __ATOMIC_RELAXED);
        if (shared[i] == 0xFFFF) std::this_thread::yield();
    }
}
static void fetched() {}
static void show(bf16* place, bf16 value) { __atomic_store_n(place, value, __ATOMIC_RELAXED); }
static bf16 ask(const bf16* place) { return *place; }
static float ask(const float* place) { return *place; }
static float over(float value) { return 1.0f / value; }
static bf16 narrow(float value) {
    word bits;
    memcpy(&bits, &value, 4);
    return value != value ? 0x7FFF : (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

// m16n8k16: lane 4 r + q has rows r and r + 8 of a, and column r of b, at k = 2 q, 2 q + 1 and eight further.
static void multiply(float* sum, word a0, word a1, word a2, word a3, word b0, word b1) {
    Warp& warp = *blocks[blockIdx.x]->warps[threadIdx.x / 32];
    const int lane = threadIdx.x % 32;
    const word a[4] = {a0, a1, a2, a3}, b[2] = {b0, b1};
    memcpy(warp.a[lane], a, 16);
    memcpy(warp.b[lane], b, 8);
    warp.together.arrive_and_wait();
    for (int i = 0; i < 4; ++i)
        for (int k = 0; k < 16; ++k) {
            const int column = lane % 4 * 2 + i % 2, q = k % 8 / 2, further = k / 8, low = k % 2 ? 0 : 16;
            const word x = warp.a[lane / 4 * 4 + q][i / 2 + 2 * further], y = warp.b[column * 4 + q][further];
            sum[i] += __uint_as_float(x << low & 0xFFFF0000u) * __uint_as_float(y << low & 0xFFFF0000u);
        }
    warp.together.arrive_and_wait();
}

static word address(const float* place, int member) {
    return (word)(member + 1) << 24 | (word)((unsigned char*)place - blocks[blockIdx.x]->shared());
}
static void send_to(int block, word address, float value) {
    *(float*)(blocks[block]->shared() + (address & 0xFFFFFF)) = value;
}
static void meet_in(int cluster) { clusters[cluster]->arrive_and_wait(); }

template <typename Work>
static void launch(int amount, int members, int threads, int shared, Work work) {
    blocks.clear();
    clusters.clear();
    for (int i = 0; i < amount; ++i) blocks.emplace_back(new Block(threads, shared));
    for (int i = 0; i < amount / members; ++i) clusters.emplace_back(new std::barrier<>(threads * members));
    std::vector<std::thread> running;
    for (int block = 0; block < amount; ++block)
        for (int thread = 0; thread < threads; ++thread)
            running.emplace_back([=] { blockIdx.x = block; threadIdx.x = thread; work(); });
    for (auto& thread : running) thread.join();
}
