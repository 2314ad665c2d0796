#!/usr/bin/env python3
"""Runner for badinput.jsonl and badinput_raw.jsonl (loopback only).
usage: run_badinput.py 127.0.0.1:8080 vars.json [file ...]
vars.json: {"TOKEN": "...", "TOKEN_EXPIRED": "...", ..., "ORIGIN_OK": "http://127.0.0.1:8080"}; HOST is set from the address.
Closing line: 'N passed, N failed, N skipped'."""
import sys,json,re,socket,base64,time
addr=sys.argv[1]; host,port=addr.rsplit(':',1); assert host in('127.0.0.1','localhost','[::1]'),'loopback only'
V=json.load(open(sys.argv[2])); V.setdefault('HOST',addr); V.setdefault('ORIGIN_OK','http://'+addr)
files=sys.argv[3:] or [__import__('os').path.join(__import__('os').path.dirname(__import__('os').path.abspath(__file__)),n) for n in ('badinput.jsonl','badinput_raw.jsonl')]
PH=re.compile(r'\{\{([A-Z0-9_]+)\}\}')
class Missing(Exception): pass
def sub(s):
    def f(m):
        if m.group(1) not in V: raise Missing(m.group(1))
        return V[m.group(1)]
    return PH.sub(f,s)
def read_resp(s,limit,stream=False,head=False):
    s.settimeout(0.2); buf=b''; t0=time.time(); closed=False; err=None
    def more():
        nonlocal buf,closed,err
        try:
            d=s.recv(65536)
            if not d: closed=True
            buf+=d
        except socket.timeout: pass
        except OSError as e: closed=True; err=type(e).__name__
    while b'\r\n\r\n' not in buf and not closed and time.time()-t0<limit: more()
    if b'\r\n\r\n' not in buf: return dict(status=0,headers=[],body=b'',closed=closed,t=time.time()-t0,raw=buf)
    h,rest=buf.split(b'\r\n\r\n',1); lines=h.decode('latin-1').split('\r\n'); st=int(lines[0].split()[1])
    if st==100:
        r=dict(got100=True); buf=rest
        while b'\r\n\r\n' not in buf and not closed and time.time()-t0<limit: more()
        if b'\r\n\r\n' not in buf: return dict(status=0,headers=[],body=b'',closed=closed,t=time.time()-t0,got100=True)
        h,rest=buf.split(b'\r\n\r\n',1); lines=h.decode('latin-1').split('\r\n'); st=int(lines[0].split()[1]); got100=True
    else: got100=False
    hs=[(l.split(':',1)[0].strip().lower(),l.split(':',1)[1].strip()) for l in lines[1:] if ':' in l]; d=dict(hs); tresp=time.time()-t0; buf=rest
    def done():
        if head or st in(204,304): return True
        if stream and re.search(rb'data:.*?\n\r?\n',buf,re.S): return True
        if 'content-length' in d: return len(buf)>=int(d['content-length'])
        if d.get('transfer-encoding','').lower()=='chunked': return buf.endswith(b'0\r\n\r\n')
        return False
    while not done() and not closed and time.time()-t0<limit: more()
    body=buf
    if d.get('transfer-encoding','').lower()=='chunked':
        out=b''; b=body
        while True:
            m=re.match(rb'([0-9a-fA-F]+)[^\r\n]*\r\n',b)
            if not m: break
            n=int(m.group(1),16)
            if n==0: break
            out+=b[m.end():m.end()+n]; b=b[m.end()+n+2:]
        body=out
    elif 'content-length' in d: body=buf[:int(d['content-length'])]
    return dict(status=st,headers=hs,body=body,closed=closed,t=tresp,got100=got100)
def rpc_of(r):
    txt=r['body'].decode('utf-8','replace')
    ct=dict(r['headers']).get('content-type','')
    if ct.startswith('text/event-stream'):
        ev=[]
        for block in re.split(r'\r?\n\r?\n',txt):
            dat='\n'.join(l[5:].lstrip(' ') for l in re.split(r'\r?\n',block) if l.startswith('data:'))
            if dat: ev.append(dat)
        txt=ev[-1] if ev else txt
    try: j=json.loads(txt)
    except Exception: j=None
    return txt,j
def check(e,r):
    bad=[]
    st=e['status'] if isinstance(e['status'],list) else [e['status']]
    if r['status'] not in st: bad.append(f"status {r['status']} not in {st}")
    hv={}
    for k,v in r['headers']: hv.setdefault(k,[]).append(v)
    opt=[x.lower() for x in e.get('headers_optional',[])]
    for key in('headers','headers2','headers3'):
        for k,rx in (e.get(key) or {}).items():
            vs=hv.get(k.lower())
            if vs is None:
                if k.lower() not in opt: bad.append(f'header {k} missing')
            elif not any(re.search(rx,v) for v in vs): bad.append(f'header {k}: {vs} !~ {rx}')
    for k,rx in (e.get('headers_not') or {}).items():
        if any(re.search(rx,v) for v in hv.get(k.lower(),[])): bad.append(f'header {k} matches {rx}')
    for k in e.get('headers_absent') or []:
        if k.lower() in hv: bad.append(f'header {k} present')
    txt,j=rpc_of(r)
    if e.get('jsonrpc_code') is not None:
        got=(j or {}).get('error',{}).get('code') if isinstance(j,dict) else None
        if got!=e['jsonrpc_code']: bad.append(f'code {got} != {e["jsonrpc_code"]}')
    for k in('body_regex','body_regex2'):
        if e.get(k) and not re.search(e[k],txt): bad.append(f'body !~ {e[k]}: {txt[:120]!r}')
    if e.get('body_not_regex') and re.search(e['body_not_regex'],txt): bad.append(f'body ~ {e["body_not_regex"]}')
    if r['status']==202 and r['body']: bad.append('202 with a body')
    if 'within_ms' in e and r['t']*1000>e['within_ms']: bad.append(f"answered after {r['t']:.1f}s")
    if e.get('close') and not r['closed']: bad.append('connection not closed')
    if e.get('must_not_send_100') and r.get('got100'): bad.append('sent 100 Continue')
    return bad
def run_http(c):
    q=c['request']
    if 'body_gen' in q: g=q['body_gen']; body=(sub(g['prefix'])+g['repeat']*g['n']+sub(g['suffix'])).encode()
    elif 'body_b64' in q: body=base64.b64decode(q['body_b64'])
    else: body=sub(q['body']).encode()
    names=[k.lower() for k,_ in q['headers']]
    out=f"{q['method']} {sub(q['path'])} HTTP/1.1\r\n"
    if 'host' not in names: out+=f"Host: {V['HOST']}\r\n"
    for k,v in q['headers']: out+=f'{k}: {sub(v)}\r\n'
    if 'content-length' not in names and (body or q['method']=='POST'): out+=f'Content-Length: {len(body)}\r\n'
    s=socket.create_connection((host,int(port)))
    try: s.sendall(out.encode('latin-1')+b'\r\n'+body)
    except OSError: pass
    return read_resp(s,float(V.get('TIMEOUT',15)),stream='stream' in c['expect'] or 'stream' in q,head=q['method']=='HEAD'),s
def run_raw(c):
    s=socket.create_connection((host,int(port))); e=c['expect']
    try: s.sendall(sub(c['raw']).encode('latin-1'))
    except OSError: pass
    if c.get('half_close'): s.shutdown(socket.SHUT_WR)
    lim=e.get('within_ms',8000)/1000+1
    if 'drip' in c:
        t0=time.time(); s.settimeout(0.3); buf=b''; closed=False; last=0
        while time.time()-t0<lim and not closed:
            if time.time()-last>c['drip']['every_ms']/1000:
                try: s.sendall(c['drip']['text'].encode()); last=time.time()
                except OSError: closed=True
            try:
                d=s.recv(4096); closed=closed or not d; buf+=d
            except socket.timeout: pass
            except OSError: closed=True
        m=re.match(rb'HTTP/1\.[01] (\d+)',buf); return dict(status=int(m.group(1)) if m else 0,headers=[],body=b'',closed=closed,t=time.time()-t0),s
    r=read_resp(s,lim)
    if e.get('close') and not r['closed']:
        t0=time.time(); s.settimeout(0.5)
        while time.time()-t0<3:
            try:
                if not s.recv(4096): r['closed']=True; break
            except socket.timeout: pass
            except OSError: r['closed']=True; break
    return r,s
P=F=S=0
for fn in files:
    for line in open(fn):
        c=json.loads(line)
        try:
            r,s=(run_raw if 'raw' in c else run_http)(c); s.close()
        except Missing as m: S+=1; continue
        b=check(c['expect'],r)
        if b: F+=1; print('FAIL',c['id'],c['title'],'|','; '.join(b))
        else: P+=1
print(f'{P} passed, {F} failed, {S} skipped'); sys.exit(1 if F else 0)
