import asyncio,time,sys,json,threading,collections
class Server:
    def __init__(s, handler): s.handler=handler; s.log=[]; s.lock=threading.Lock()
    async def conn(s,r,w):
        try:
            while True:
                head=await r.readuntil(b'\r\n\r\n')
                t=time.monotonic()
                lines=head.decode('latin1').split('\r\n'); m,p,_=lines[0].split(' ',2)
                h={l.split(':',1)[0].lower():l.split(':',1)[1].strip() for l in lines[1:] if ':' in l}
                body=b''
                if 'content-length' in h: body=await r.readexactly(int(h['content-length']))
                s.log.append((t,p,body))
                out=await s.handler(s,m,p,h,body,w)
                if out is None: w.close(); return
                w.write(out); await w.drain()
        except (asyncio.IncompleteReadError,ConnectionError,asyncio.LimitOverrunError): pass
        finally:
            try: w.close()
            except Exception: pass
    def start(s):
        ev=threading.Event()
        def run():
            async def main():
                srv=await asyncio.start_server(s.conn,'127.0.0.1',0,backlog=512); s.port=srv.sockets[0].getsockname()[1]; ev.set()
                await srv.serve_forever()
            asyncio.run(main())
        threading.Thread(target=run,daemon=True).start(); ev.wait(); return s
    @property
    def url(s): return f'http://127.0.0.1:{s.port}'
def ok(body=b'ok',status=200,extra=''):
    return f'HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n{extra}\r\n'.encode()+body
def maxin(ts,w):
    ts=sorted(ts); best=0; q=collections.deque()
    for t in ts:
        q.append(t)
        while q[0]<=t-w: q.popleft()
        best=max(best,len(q))
    return best
