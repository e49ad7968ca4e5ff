import asyncio, importlib, json, os, sys, time, tempfile
import pytest
from sandbox.protocol import CodeResult
from workflow.failures import LimitExceeded, ProgramFailed
from workflow.limits import CodeLimits

PY=sys.executable
class Proc:
    def __init__(self,p,limits): self.p=p; self.l=limits; self.t=time.monotonic(); self.err=asyncio.create_task(p.stderr.read()); self.killed=None
    async def write(self,data):
        try:
            self.p.stdin.write(data); await self.p.stdin.drain()
        except (BrokenPipeError,ConnectionResetError): pass
    async def close_stdin(self): self.p.stdin.close()
    async def readline(self): 
        try: return await self.p.stdout.readline()
        except ValueError: await self.kill(); self.killed='output_bytes'; return b''
    async def wait(self):
        lim=self.killed
        try: await asyncio.wait_for(self.p.wait(), max(0.01,self.l.wall_s-(time.monotonic()-self.t)))
        except TimeoutError: lim='wall_s'; await self.kill()
        rc=self.p.returncode
        return CodeResult(exit_status=None if lim or rc<0 else rc, signal=-rc if rc<0 and not lim else None, stdout='', stderr=(await self.err).decode(errors='replace'), duration_s=time.monotonic()-self.t, limit=lim)
    async def kill(self):
        if self.p.returncode is None:
            try: self.p.kill()
            except ProcessLookupError: pass
            await self.p.wait()
class StandIn:
    async def start_code(self, code, *, limits=None, workspace=None):
        limits=limits or CodeLimits()
        f=tempfile.NamedTemporaryFile('w',suffix='.py',delete=False); f.write(code); f.close()
        import resource
        def pre(): resource.setrlimit(resource.RLIMIT_AS,(limits.memory_mb<<20,)*2)
        p=await asyncio.create_subprocess_exec(PY,'-I',f.name,stdin=-1,stdout=-1,stderr=-1,preexec_fn=pre,limit=limits.output_bytes)
        return Proc(p,limits)
    async def run_code(self, code, *, stdin='', limits=None, workspace=None):
        proc=await self.start_code(code,limits=limits)
        async def feed():
            await proc.write(stdin.encode()); proc.p.stdin.close()
        t=asyncio.create_task(feed())
        out=asyncio.create_task(proc.p.stdout.read())
        r=await proc.wait(); 
        o=await out; t.cancel()
        lim='output_bytes' if len(o)>proc.l.output_bytes and not r.limit else r.limit
        return r.model_copy(update={'stdout':o.decode(errors='replace'),'limit':lim})
    async def call(self, target, payload, *, wall_s=10.0, memory_mb=1024):
        m,f=target.split(':')
        code=f"import sys,json;sys.path.insert(0,{os.getcwd()!r});import {m} as m;print(json.dumps(m.{f}(json.load(sys.stdin))))"
        r=await self.run_code(code,stdin=json.dumps(payload),limits=CodeLimits(wall_s=wall_s,memory_mb=4096))
        if r.limit: raise LimitExceeded(r.limit, wall_s, wall_s)
        if r.exit_status!=0: raise ProgramFailed('x',r.stderr[-300:])
        return json.loads(r.stdout)
    async def __aenter__(self): return self
    async def __aexit__(self,*a): pass
ProcessSandbox=StandIn

@pytest.fixture(scope="session")
def in_jail():
    with asyncio.Runner() as runner:
        sb=StandIn()
        yield lambda work: runner.run(work(sb))
